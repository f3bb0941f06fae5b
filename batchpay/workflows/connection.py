"""The connection test: whether the gateway answers, and accepts our id and key."""

from __future__ import annotations

from contextlib import closing

from batchpay.gateway.credentials import load_credentials
from batchpay.gateway.origin import check_origin
from batchpay.gateway.payments import ConnectionReport, PaymentsClient
from batchpay.settings import GatewaySettings


def test_gateway(gateway: GatewaySettings) -> ConnectionReport:
    """Send an empty request to the gateway's connection test; raises SettingsNotUsable, CredentialsNotUsable."""
    check_origin(gateway.base_url)
    with closing(PaymentsClient(gateway, load_credentials(gateway))) as client:
        return client.test_connection()
