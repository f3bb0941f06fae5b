"""Checks at the gateway before any payment is claimed: whether it accepts our credentials, and the file's accounts."""

from __future__ import annotations

from collections.abc import Iterable

from batchpay.errors import CredentialsRefused, GatewayUnreachable
from batchpay.gateway.accounts import AccountRefused, AccountsClient, account_id
from batchpay.gateway.credentials import Credentials
from batchpay.gateway.payments import PaymentsClient
from batchpay.settings import GatewaySettings

UNKNOWN = "unknown"
NOT_ECHECK = "not_echeck"


class Preflight:
    """Asks the gateway once about each account, however many rows it concerns."""

    def __init__(self, settings: GatewaySettings, credentials: Credentials) -> None:
        self._settings = settings
        self._credentials = credentials
        self._codes: dict[str, str | None] = {}

    def check_connection(self) -> None:
        """Raise CredentialsRefused or GatewayUnreachable unless the gateway answers and accepts our credentials."""
        client = PaymentsClient(self._settings, self._credentials)
        try:
            report = client.test_connection()
        finally:
            client.close()
        if not report.ok:
            error = CredentialsRefused if report.http_status in (401, 403) else GatewayUnreachable
            raise error(report.problem or "the gateway did not answer as expected")

    def refused(self, gateway_ids: Iterable[str]) -> dict[str, str]:
        """Return the ids that no payment can go through, with the code of what is wrong; raises RunStopped."""
        wanted = list(dict.fromkeys(gateway_ids))
        client = AccountsClient(self._settings, self._credentials)
        try:
            for gateway_id in wanted:
                if gateway_id not in self._codes:
                    self._codes[gateway_id] = _code(client, gateway_id)
        finally:
            client.close()
        codes = {gateway_id: self._codes[gateway_id] for gateway_id in wanted}
        return {gateway_id: code for gateway_id, code in codes.items() if code is not None}


def _code(client: AccountsClient, gateway_id: str) -> str | None:
    number = account_id(gateway_id)
    if number is None:
        return UNKNOWN
    try:
        account = client.get(number)
    except AccountRefused:
        return UNKNOWN
    return None if account.is_echeck else NOT_ECHECK
