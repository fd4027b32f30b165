"""The client of a checkpoint manager, TLS and allow-lists, and the settings that keep strangers out."""

from __future__ import annotations

import io
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import stamina
from heron_servers import COUNT0, COUNT1, HOST, ID, NAME, TIMEOUT_S, TOPOLOGY, serving

from millpond.blob.memory import MemoryBlobStore
from millpond.errors import CommitFailedError, ConfigError, StateNotFoundError, StoreClosedError, TransientError
from millpond.heron import events, peers
from millpond.heron.client import CheckpointClient, RefusedError
from millpond.heron.folder import FolderStore
from millpond.heron.peers import ConnectionEndedError, Instance, Topology, Wire
from millpond.heron.settings import ServerSettings, TlsSettings


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    """Retries follow one another at once."""
    with stamina.set_testing(True, attempts=5):
        yield


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_what_a_client_stores_it_gets_back(tmp_path: Path, kind: str):
    """States of all sizes, from memory and from files, come back into memory and into files; cleans say what went."""
    large = tmp_path / "large"
    large.write_bytes(b"abc" * 1_000_000)
    blobs = FolderStore(tmp_path / "states") if kind == "folder" else None
    with serving(tmp_path, blobs) as served, CheckpointClient(HOST, served.port, TOPOLOGY, stmgr="stmgr-1") as client:
        client.save(COUNT0, "1-1", b"small")
        client.save(COUNT1, "1-1", large)
        client.save(COUNT0, "1-2", None)
        client.save(COUNT1, "1-2", b"")
        into = io.BytesIO(b"left over")

        assert client.get(COUNT0, "1-1") == b"small"
        assert client.get_to(COUNT1, "1-1", into)
        assert into.getvalue() == large.read_bytes()
        assert (client.get(COUNT0, "1-2"), client.get(COUNT1, "1-2")) == (None, b"")
        assert client.get(COUNT0, "") == b""
        assert client.clean("1-2") == ["1-1"]
        assert client.clean_all() == ["1-2"]


def test_a_coordinators_client_cleans(tmp_path: Path):
    """A client without a stream manager's name registers as the coordinator."""
    with serving(tmp_path) as served, CheckpointClient(HOST, served.port, TOPOLOGY) as client:
        assert client.clean("1-1") == []
        assert [event.slot for event in served.ear.of(events.Registered)] == [""]


def test_a_client_connects_again_after_a_break(tmp_path: Path):
    """A client whose connection was closed, or whose server was restarted, goes on with its next request."""
    blobs = MemoryBlobStore()
    with socket.create_server((HOST, 0)) as sock:
        port = sock.getsockname()[1]
    with CheckpointClient(HOST, port, TOPOLOGY, stmgr="stmgr-1", timeout_s=5) as client:
        with serving(tmp_path, blobs, port=port) as served:
            client.save(COUNT0, "1-1", b"x")
            with served.stmgr() as other:  # takes its place
                assert other.await_registration()
                served.ear.wait(events.Disconnected)
            assert client.get(COUNT0, "1-1") == b"x"
        with pytest.raises(ConnectionEndedError):
            client.clean("1-1")
        with serving(tmp_path, blobs, port=port):
            assert client.get(COUNT0, "1-1") == b"x"
            client.close()
        with pytest.raises(StoreClosedError):
            client.get(COUNT0, "1-1")


def test_a_save_that_stays_refused_is_a_failed_commit(tmp_path: Path):
    """After all attempts a refused save is a CommitFailedError with the server's words: a coordinator can give up."""
    blobs = MemoryBlobStore()
    calls: list[str] = []

    def refuse(verb: str, name: str) -> None:
        if verb == "put":
            calls.append(name)
            raise TransientError("the bucket is away")

    blobs.before = refuse
    with serving(tmp_path, blobs) as served, CheckpointClient(HOST, served.port, TOPOLOGY, attempts=3) as client:
        with pytest.raises(CommitFailedError, match="the bucket is away"):
            client.save(COUNT0, "1-1", b"x")
        assert len(calls) == 5  # the fixture's number of attempts


def test_28_gets_are_repeated_with_growing_delays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """28: a get that is refused is asked again after a delay that grows, with jitter, and in the end is not found."""
    waits: list[float] = []
    monkeypatch.setattr("tenacity.nap.time.sleep", waits.append)
    with (
        stamina.set_testing(False),
        serving(tmp_path) as served,
        CheckpointClient(HOST, served.port, TOPOLOGY, attempts=4) as client,
        pytest.raises(StateNotFoundError, match="there is no state"),
    ):
        client.get(COUNT0, "9-9")
    assert len(waits) == 3
    assert all(wait > 0 for wait in waits)
    assert len(served.ear.of(events.RequestFailed)) == 4


def test_a_registration_that_is_refused_is_told(tmp_path: Path):
    """A client of another topology is refused with the server's reason."""
    with (
        serving(tmp_path) as served,
        CheckpointClient(HOST, served.port, Topology(NAME, "other")) as client,
        pytest.raises(RefusedError, match="word-count-7f3a"),
    ):
        client.clean("1-1")


@pytest.mark.parametrize("answer", [b"", b"\x00\x00\x00\x00", b"HTTP/1.1 200 OK\r\n\r\n" + bytes(64)])
def test_an_answer_that_is_none_ends_the_clients_wait(answer: bytes):
    """A server that closes, or answers nonsense, makes a request fail and never hang."""
    with socket.create_server((HOST, 0)) as listener:
        stop = threading.Event()

        def answer_all() -> None:
            listener.settimeout(0.2)
            while not stop.is_set():
                try:
                    sock, _ = listener.accept()
                except TimeoutError:
                    continue
                with sock:
                    sock.recv(1000)
                    sock.sendall(answer)

        thread = threading.Thread(target=answer_all)
        thread.start()
        try:
            with (
                CheckpointClient(HOST, listener.getsockname()[1], TOPOLOGY, timeout_s=2) as client,
                pytest.raises((ConnectionEndedError, ValueError)),
            ):
                client.clean("1-1")
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS"])
def test_closing_a_client_ends_a_request_that_waits(tmp_path: Path, papers: Path, encrypted: bool):
    """A thread that waits for a store that hangs is let go of when another one closes the client, with the reason."""
    blobs, go_on = MemoryBlobStore(), threading.Event()
    inside = threading.Event()

    def hang(_verb: str, _name: str) -> None:
        inside.set()
        go_on.wait(TIMEOUT_S)

    blobs.before = hang
    given = {"tls": tls(papers)} if encrypted else {}
    with serving(tmp_path, blobs, **given) as served, ThreadPoolExecutor(1) as pool:
        served.states.instant = False
        client = served.client(tls=client_context(papers, "container-1") if encrypted else None)
        saving = pool.submit(client.save, COUNT0, "1-1", b"x")
        try:
            assert inside.wait(TIMEOUT_S)
            client.close()
            assert isinstance(saving.exception(TIMEOUT_S / 3), StoreClosedError)
        finally:
            go_on.set()


def test_a_client_takes_no_answer_beyond_its_limit(tmp_path: Path):
    """An answer that says it is larger than the client's limit is refused before it is read."""
    with serving(tmp_path) as served:
        served.states.save(peers_key(), b"x" * 100_000)
        wire = served.wire(largest=10_000)
        wire.send(peers.get(COUNT0, "1-1", bytes(32)))
        with pytest.raises(ValueError, match="over the limit"):
            wire.receive()


def peers_key() -> Any:
    from heron_servers import key

    return key(COUNT0, "1-1")


# Strangers


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and certificates that it and a stranger signed."""
    cryptography = pytest.importorskip("cryptography", reason="certificates are made with it: pip install cryptography")
    assert cryptography
    folder = tmp_path_factory.mktemp("papers")
    ca = make_certificate(folder, "ca", None)
    make_certificate(folder, "server", ca)
    make_certificate(folder, "container-1", ca)
    make_certificate(folder, "container-2", ca)
    make_certificate(folder, "stranger", make_certificate(folder, "other-ca", None))
    return folder


def make_certificate(folder: Path, name: str, signer: Any) -> Any:
    """Write a certificate and its key; give both."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    issuer, issuer_key = (subject, key) if signer is None else signer
    now = datetime.now(UTC)
    kinds = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
             "key_cert_sign", "crl_sign", "encipher_only", "decipher_only")  # fmt: skip
    usage = x509.KeyUsage(
        **{kind: kind == ("key_cert_sign" if signer is None else "digital_signature") for kind in kinds}
    )
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST)), x509.DNSName(name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
        # Python 3.13 takes no certificate without these.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(usage, critical=True)
        .add_extension(names, critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    (folder / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / f"{name}.key").write_bytes(key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
    return subject, key


def tls(papers: Path, *names: str) -> TlsSettings:
    return TlsSettings(
        certificate=papers / "server.pem",
        key=papers / "server.key",
        client_ca=papers / "ca.pem",
        client_names=frozenset(names),
    )


def client_context(papers: Path, name: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(papers / "ca.pem"))
    if name is not None:
        context.load_cert_chain(papers / f"{name}.pem", papers / f"{name}.key")
    return context


def test_tls_carries_states_of_all_sizes(tmp_path: Path, papers: Path):
    """Over TLS, a client that the authority signed saves and gets small and large states."""
    with serving(tmp_path, FolderStore(tmp_path / "states"), tls=tls(papers)) as served:
        context = client_context(papers, "container-1")
        with CheckpointClient(HOST, served.port, TOPOLOGY, tls=context) as client:
            for size in (10, 3_000_000):
                client.save(COUNT0, "1-1", b"x" * size)
                assert client.get(COUNT0, "1-1") == b"x" * size


class Watch:
    """Notes the threads that are inside a socket at the same time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most, self._inside, self._lock = 0, 0, threading.Lock()
        for name in ("send", "_fill"):
            monkeypatch.setattr(Wire, name, self._watched(getattr(Wire, name)))

    def _watched(self, real: Callable[..., None]) -> Callable[..., None]:
        def watched(*given: Any) -> None:
            with self._lock:
                self._inside += 1
                self.most = max(self.most, self._inside)
            try:
                real(*given)
            finally:
                with self._lock:
                    self._inside -= 1

        return watched


def test_threads_that_share_a_client_take_turns_at_its_tls_socket(
    tmp_path: Path, papers: Path, monkeypatch: pytest.MonkeyPatch
):
    """Four threads save and get through one client: each gets its own bytes, and no two are in the socket at once."""
    watch = Watch(monkeypatch)
    with serving(tmp_path, FolderStore(tmp_path / "states"), tls=tls(papers)) as served:
        client = served.client(tls=client_context(papers, "container-1"))

        def work(number: int) -> bool:
            state = bytes([number]) * 400_000
            for step in range(4):
                client.save(Instance("count", number), f"1-{step}", state)
                if client.get(Instance("count", number), f"1-{step}") != state:
                    return False
            return True

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(work, range(4))) == [True] * 4
    assert watch.most == 1


@pytest.mark.parametrize("who", [None, "stranger", "container-2", "plain"])
def test_tls_keeps_strangers_out(tmp_path: Path, papers: Path, who: str | None):
    """No certificate, one of another authority, one with another name, and no TLS at all get no answer."""
    with serving(tmp_path, tls=tls(papers, "container-1")) as served:
        context = None if who == "plain" else client_context(papers, who)
        with (
            CheckpointClient(HOST, served.port, TOPOLOGY, tls=context, timeout_s=5) as client,
            pytest.raises((ConnectionEndedError, ValueError)),
        ):
            client.clean("1-1")
        with CheckpointClient(HOST, served.port, TOPOLOGY, tls=client_context(papers, "container-1")) as client:
            assert client.clean("1-1") == []


def test_an_address_that_is_not_on_the_list_is_turned_away(tmp_path: Path):
    """A client from elsewhere is closed without an answer, with an event; one on the list is served."""
    with serving(tmp_path, allow=("192.0.2.0/24",)) as served:
        with pytest.raises(ConnectionEndedError):
            served.client().clean("1-1")
        assert "allow-list" in served.ear.wait(events.ConnectionRefused)[0].reason
    allow = ("192.0.2.0/24", "127.0.0.1")
    with serving(tmp_path, allow=allow) as served, CheckpointClient(HOST, served.port, TOPOLOGY) as client:
        assert client.clean("1-1") == []


def test_other_machines_need_tls_and_a_list():
    """A server that others can reach is refused without TLS, and without a list of addresses or an authority."""
    files = {"certificate": Path("c"), "key": Path("k")}
    with pytest.raises(ConfigError, match="--tls-certificate"):
        ServerSettings(host="0.0.0.0", allow=("10.0.0.0/8",))
    with pytest.raises(ConfigError, match="--allow"):
        ServerSettings(host="::", tls=TlsSettings(**files))
    assert not ServerSettings(host="0.0.0.0", tls=TlsSettings(**files), allow=("10.0.0.0/8",)).is_local
    assert ServerSettings().is_local
    assert ServerSettings(host="::1").is_local


def test_mapped_addresses_are_on_the_list_of_their_kind():
    """An IPv4 client of a socket for both is compared as the IPv4 address that it is."""
    settings = ServerSettings(allow=("10.0.0.0/8", "fe80::/10"))

    assert settings.admits("::ffff:10.1.2.3")
    assert settings.admits("fe80::1%eth0")
    assert not settings.admits("::ffff:11.1.2.3")
    assert not settings.admits("nobody")


def test_tls_files_that_are_wrong_are_told(tmp_path: Path):
    """A certificate that is missing is a ConfigError when the server starts."""
    wrong = TlsSettings(certificate=tmp_path / "none", key=tmp_path / "none")
    with pytest.raises(ConfigError, match="TLS files"), serving(tmp_path, tls=wrong):
        pass


def test_the_ids_of_topologies_matter():
    """The default settings serve what is named and nothing else."""
    assert ServerSettings(topologies={NAME: ID}).topologies == {NAME: ID}


def test_who_comes_under_any_name_leaves_nothing_behind(tmp_path: Path):
    """A server for all topologies forgets a topology's plan and id when its last client has gone."""
    with serving(tmp_path, topologies=None) as served:
        for number in range(5):
            topology = Topology(f"t-{number}", "1", (COUNT0,))
            with served.stmgr(topology=topology) as stmgr:
                assert stmgr.save({COUNT0: b"x"}, "1-1") == {COUNT0}
                assert served.ask(lambda name=topology.name: served.server.service.registry.plan_of(name)) is not None
        served.ear.wait(events.Disconnected, 5)
        assert served.ask(lambda: (served.server.service.registry._plans, served.server.service.registry._ids)) == (
            {},
            {},
        )


def test_a_request_that_waits_for_memory_has_its_time_too(tmp_path: Path):
    """A get for which no memory comes free is NOTOK when the store's time is over, and is not done afterwards."""
    with serving(tmp_path, FolderStore(tmp_path / "states"), memory=1 << 20, store_timeout=0.4) as served:
        served.states.save(peers_key(), b"x")
        budget = served.server.service.budget
        assert served.ask(lambda: budget.take(1 << 20, lambda: True))
        with served.stmgr() as stmgr:
            answer = stmgr.answer(stmgr.begin_get(COUNT0, "1-1")).message
            assert answer.status.status == 2
            assert "did not answer" in answer.status.message
            served.ask(lambda: budget.give_back(1 << 20))
            assert stmgr.answer(stmgr.begin_get(COUNT0, "1-1")).message.status.status == 1
        served.ear.wait(events.Disconnected)
        assert len(served.ear.of(events.StateFetched)) == 1
        assert served.ask(lambda: budget.held) == 0
