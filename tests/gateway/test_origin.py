"""Where requests may go: what an origin may be and what it may not."""

from __future__ import annotations

import pytest

from batchpay.errors import SettingsNotUsable
from batchpay.gateway.origin import check_origin, check_proxy, environment_of, is_loopback, is_rehearsal
from batchpay.settings import GatewaySettings


@pytest.mark.parametrize(
    ("base_url", "shown", "authority"),
    [
        ("https://gateway.example", "https://gateway.example", "gateway.example"),
        ("https://gateway.example/", "https://gateway.example", "gateway.example"),
        ("https://gateway.example:443", "https://gateway.example", "gateway.example"),
        ("https://GATEWAY.example:8443", "https://gateway.example:8443", "gateway.example:8443"),
        ("https://192.0.2.7", "https://192.0.2.7", "192.0.2.7"),
        ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443", "[2001:db8::1]:8443"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080", "127.0.0.1:8080"),
        ("http://127.9.8.7", "http://127.9.8.7", "127.9.8.7"),
        ("http://[::1]:8080", "http://[::1]:8080", "[::1]:8080"),
        ("http://localhost:8080", "http://localhost:8080", "localhost:8080"),
    ],
)
def test_usable_origins(base_url: str, shown: str, authority: str) -> None:
    """An https origin may be anywhere, an http one only on this machine."""
    origin = check_origin(base_url)
    assert (str(origin), origin.authority) == (shown, authority)


@pytest.mark.parametrize("base_url", [
    "", "gateway.example", "//gateway.example", "ftp://gateway.example", "file:///etc/passwd",
    "http://gateway.example", "http://192.168.0.1", "http://localhost.example", "http://localhost.",
    "http://127.0.0.1.example", "http://127.1", "http://2130706433", "http://0x7f000001", "http://[::ffff:127.0.0.1]",
    "http://0.0.0.0", "http://127.0.0.1@gateway.example", "https://user:secret-canary@gateway.example",
    "https://@gateway.example", "https://gateway.example/path", "https://gateway.example//",
    "https://gateway.example?", "https://gateway.example?key=secret-canary", "https://gateway.example#",
    "https://gateway.example#part", "https://gateway.example:0", "https://gateway.example:99999",
    "https://gateway.example:port", "https://gateway.example:80:80", "https://gate way.example",
    "https://gateway.example\n", "https://gateway\t.example", "https://gateway.example\\@evil.example",
    "https://gatew\u0430y.example", "https://gateway.example\x00", "https://", "https://:443",
    "https://-gateway.example", "https://[::1", "https://[::zz]", "https://[fe80::1%eth0]", "https://[v1.a:1]",
    "https://gate%2eway.example",
])  # fmt: skip
def test_unusable_origins(base_url: str) -> None:
    """Anything else is refused in one line that does not repeat what may be a secret."""
    with pytest.raises(SettingsNotUsable) as caught:
        check_origin(base_url)
    assert "\n" not in str(caught.value)
    assert "secret-canary" not in str(caught.value)


def test_loopback_hosts() -> None:
    """Loopback is 127.0.0.0/8, ::1 and localhost, and nothing that looks like it."""
    assert all(map(is_loopback, ("127.0.0.1", "127.255.255.254", "::1", "localhost")))
    assert not any(map(is_loopback, ("", "10.0.0.1", "localhost.", "LOCALHOST.example", "127.0.0.1.example")))


def test_explicit_proxy() -> None:
    """A proxy is http://host:port, with a user where it wants one; its password shows nowhere."""
    proxy = check_proxy("http://us%40er:secret-canary@proxy.example:3128")
    assert proxy is not None
    assert (proxy.host, proxy.port) == ("proxy.example", 3128)
    assert proxy.authorization == "Basic dXNAZXI6c2VjcmV0LWNhbmFyeQ=="
    assert repr(proxy) == "Proxy(proxy.example:3128)"
    assert check_proxy("") is None
    plain = check_proxy("http://proxy.example")
    assert plain is not None
    assert (plain.host, plain.port, plain.authorization) == ("proxy.example", 80, None)


@pytest.mark.parametrize(
    "proxy",
    [
        "proxy.example:3128",
        "https://proxy.example",
        "socks5://proxy.example",
        "http://",
        "http://a/b",
        "http://u:secret-canary@",
    ],
)
def test_unusable_proxies(proxy: str) -> None:
    """Other kinds of proxy are refused, without the text."""
    with pytest.raises(SettingsNotUsable) as caught:
        check_proxy(proxy)
    assert "secret-canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("base_url", "setting", "environment"),
    [
        ("https://pay.example.com", "", "live"),
        ("http://127.0.0.1:8080", "", "test"),
        ("https://localhost", "", "test"),
        ("https://sandbox.example.com", "test", "test"),
        ("http://[::1]:1", "live", "live"),
        ("", "", "live"),
        ("nonsense", "", "live"),
    ],
)
def test_the_environment_is_the_settings_or_the_address_says_it(base_url: str, setting: str, environment: str) -> None:
    """A gateway on loopback is for tests unless the setting says otherwise; every other one is live."""
    assert environment_of(GatewaySettings(base_url=base_url, environment=setting)) == environment


@pytest.mark.parametrize(
    ("base_url", "setting", "is_it"),
    [
        ("http://127.0.0.1:8080", "", True),
        ("http://127.0.0.1:8080", "live", False),
        ("https://sandbox.example.com", "test", False),
        ("https://pay.example.com", "", False),
    ],
)
def test_nothing_moves_money_only_at_a_test_gateway_on_this_machine(base_url: str, setting: str, is_it: bool) -> None:
    """A live gateway may be reached through a tunnel that ends here, and a test gateway elsewhere may be none."""
    assert is_rehearsal(GatewaySettings(base_url=base_url, environment=setting)) is is_it


def test_an_address_that_is_missing_is_named() -> None:
    """The first thing that somebody is told who has set nothing: what to set, by both of its names."""
    with pytest.raises(SettingsNotUsable, match=r"^gateway\.base_url \(BATCHPAY_BASE_URL\) is not set$"):
        check_origin("")


def test_an_environment_is_live_or_test() -> None:
    """A mistyped word must not make a third world."""
    with pytest.raises(SettingsNotUsable, match="live or test"):
        environment_of(GatewaySettings(environment="prod"))
