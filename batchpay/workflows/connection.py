"""The gateway's id and key for a call, and the connection test: whether the gateway answers, and accepts them."""

from __future__ import annotations

import os
from contextlib import closing

from batchpay.errors import CredentialsNotUsable
from batchpay.gateway.credentials import API_KEY_FILE_VARIABLE, Credentials, load_credentials
from batchpay.gateway.origin import check_origin
from batchpay.gateway.payments import ConnectionReport, PaymentsClient
from batchpay.ledger.open import own_files
from batchpay.settings import Settings


def credentials_of(settings: Settings) -> Credentials:
    """Find the gateway's id and key; raises CredentialsNotUsable, also if a file of the ledger would be sent as one."""
    if named := os.environ.get(API_KEY_FILE_VARIABLE):
        for path, what in own_files(settings.ledger).items():
            if os.path.realpath(path) == os.path.realpath(named):
                raise CredentialsNotUsable(
                    f"{API_KEY_FILE_VARIABLE} names {what}, {path}: the gateway would be sent it"
                )
    return load_credentials(settings.gateway)


def test_gateway(settings: Settings) -> ConnectionReport:
    """Send an empty request to the gateway's connection test; raises SettingsNotUsable, CredentialsNotUsable."""
    check_origin(settings.gateway.base_url)
    with closing(PaymentsClient(settings.gateway, credentials_of(settings))) as client:
        return client.test_connection()
