"""Who may do what, what shows no secret, and what an operator gets to read for a wrong setting."""

from __future__ import annotations

import gc
import logging
import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kazoo.security import make_digest_acl_credential
from zookeeper_managers import TASK, checkpoint, connection_of, ids_of, job_context, manager_at, metadata_at, tree

from millpond.checkpoint import CheckpointId
from millpond.errors import ConfigError, TransientError
from millpond.spi import Secret, VersionPolicy
from millpond_zookeeper import ZooKeeperCheckpoints, ZooKeeperCheckpointsConfig, ZooKeeperSettings

# kazoo leaves a socket whose handshake failed to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <ssl:pytest.PytestUnraisableExceptionWarning", "ignore:unclosed <ssl:ResourceWarning"
)
PASSWORD = "pass:wörd-k9"  # a colon is fine in a password


def test_nodes_of_a_user_are_nobody_elses(hosts, root):
    """With user and password each node is the user's alone: a stranger reads nothing and is told what to correct."""
    mine = manager_at(hosts, root, user="job", password=PASSWORD)
    claim = mine.claim(TASK)
    mine.write(claim, checkpoint(1), after=None)
    stranger, wrong = manager_at(hosts, root), manager_at(hosts, root, user="job", password="another")

    for each in (stranger, wrong):
        for call in (
            lambda each=each: each.read_last(TASK),
            lambda each=each: each.claim(TASK),
            lambda each=each: each.write(claim, checkpoint(2), after=CheckpointId(1, 0)),
        ):
            with pytest.raises(ConfigError, match="correct user and password, or the ACL"):
                call()
    for node in tree(connection_of(mine), root):
        acl, _ = connection_of(mine).read(lambda client, node=node: client.get_acls_async(node), "look")
        assert {("digest", make_digest_acl_credential("job", PASSWORD), 31)} == {
            (entry.id.scheme, entry.id.id, entry.perms) for entry in acl
        }
    assert ids_of(1) == mine.ids(TASK)
    for each in (mine, stranger, wrong):
        each.close()


def test_an_acl_lets_others_look(hosts, root):
    """An explicit ACL is that of every node: who may only read sees the records and can change nothing."""
    rules = [f"digest:{make_digest_acl_credential('job', PASSWORD)}:cdrwa"]
    rules.append(f"digest:{make_digest_acl_credential('ops', 'secret')}:r")
    mine = manager_at(hosts, root, user="job", password=PASSWORD, acl=rules)
    claim = mine.claim(TASK)
    mine.write(claim, checkpoint(1), after=None)
    ops = manager_at(hosts, root, user="ops", password="secret")

    assert ids_of(1) == ops.ids(TASK)
    with pytest.raises(ConfigError):
        ops.claim(TASK)
    with pytest.raises(ConfigError):
        ops.delete(claim, ids_of(1))
    for each in (mine, ops):
        each.close()


def test_a_coordinators_nodes_are_its_users(hosts, root):
    """A stranger can neither lead nor read."""
    with metadata_at(hosts, root, user="job", password=PASSWORD) as mine, metadata_at(hosts, root) as stranger:
        mine.write(mine.lead("a", 30), b"one", None)
        for call in (stranger.read, stranger.leader, lambda: stranger.lead("b", 5)):
            with pytest.raises(ConfigError, match="correct user and password"):
                call()


def test_no_log_line_error_or_repr_shows_a_password(hosts, root, caplog):
    """With everything logged, and on errors, the password appears nowhere."""
    caplog.set_level(1)
    logging.getLogger("millpond.zookeeper").setLevel(1)
    mine = manager_at(hosts, root, user="job", password=PASSWORD)
    mine.claim(TASK)
    wrong = manager_at(hosts, root, user="job", password="wr0ng")
    with pytest.raises(ConfigError) as refused:
        wrong.claim(TASK)
    mine.close()
    wrong.close()
    logging.getLogger("millpond.zookeeper").setLevel(logging.NOTSET)

    assert "Sending request" in caplog.text
    for text in (caplog.text, repr(mine.config), str(mine.config), str(refused.value), repr(refused.value)):
        assert PASSWORD not in text
        assert "wr0ng" not in text


def test_a_job_is_not_prepared_where_it_may_not_write(hosts, root):
    """A root that belongs to somebody else is found by prepare, and named."""
    owner = manager_at(hosts, root, user="owner", password="o")
    owner.create_resources()
    mine = manager_at(hosts, root, user="job", password=PASSWORD)
    with pytest.raises(ConfigError, match="ACL"):
        mine.validate_resources()
    owner.close()
    mine.close()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"hosts": ""}, "hosts holds ''"),
        ({"hosts": "zk1:2181/prod"}, "as root"),
        ({"hosts": "zk1:2181,,zk2"}, "hosts holds ''"),
        ({"root": "millpond"}, "root is 'millpond'"),
        ({"root": "/a/../b"}, "root is"),
        ({"root": "/zookeeper/x"}, "the server's own"),
        ({"user": "job"}, "go together"),
        ({"password": "x"}, "go together"),
        ({"user": "a:b", "password": "x"}, "no colon"),
        ({"acl": ["digest:x:q"]}, "acl holds"),
        ({"acl": ["auth::cdrwa"]}, "give user and password"),
        ({"ca": Path("/ca.pem")}, "tls = true"),
        ({"tls": True, "certificate": Path("/c.pem")}, "certificate and key"),
        ({"session_timeout": timedelta(milliseconds=10)}, "session_timeout is"),
        ({"timeout": timedelta(0)}, "timeout is"),
        ({"max_node": 10}, "max_node is 10 bytes"),
    ],
)
def test_a_wrong_setting_is_refused_with_the_right_one(settings: dict[str, Any], said: str):
    """What cannot be right is a ConfigError that says what to write."""
    with pytest.raises(ConfigError, match=said):
        ZooKeeperSettings(**{"hosts": "zk1:2181", **settings})


def test_users_may_have_roots_side_by_side(hosts, root):
    """Nodes above a root are made for everybody, so the first user does not shut the second one out."""
    first = manager_at(hosts, f"{root}/first", user="first", password="1")
    second = manager_at(hosts, f"{root}/second", user="second", password="2")

    for manager in (first, second):
        manager.create_resources()
        manager.validate_resources()
        manager.write(manager.claim(TASK), checkpoint(1), after=None)
        manager.close()


def test_a_job_of_another_id_or_name_is_a_stranger(hosts, root):
    """Jobs whose names hold slashes, dots and what no path may hold keep apart below one root."""
    jobs = [("a/b", "1"), ("a", "1"), ("a", "b"), ("..", "1"), ("ä ö\u2028", "1"), ("zookeeper", "1")]
    config = ZooKeeperCheckpointsConfig(hosts=hosts, root=root)
    managers = [ZooKeeperCheckpoints(config, job_context(*job), VersionPolicy()) for job in jobs]
    for number, manager in enumerate(managers, 1):
        for task in ("a/b", "..", "ü \x01"):
            manager.write(manager.claim(task), checkpoint(number), after=None)

    for number, manager in enumerate(managers, 1):
        assert ["..", "a/b", "ü \x01"] == manager.tasks()
        assert all(ids_of(number) == manager.ids(task) for task in manager.tasks())
        manager.close()


@pytest.fixture
def certificates(tmp_path: Path) -> Iterator[Path]:
    """A key and a certificate for 127.0.0.1, signed by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not there: install it")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:TRUE"]
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "certificate.pem")]
    subprocess.run([*command, *names, *files], check=True, capture_output=True, timeout=60)
    both = (tmp_path / "key.pem").read_bytes() + (tmp_path / "certificate.pem").read_bytes()
    (tmp_path / "server.pem").write_bytes(both)
    yield tmp_path
    gc.collect()


def test_everything_goes_through_tls(own_ensemble, root, certificates):
    """With `tls` and `ca` a job speaks to a port that speaks nothing else; without the right `ca` it does not."""
    secure = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": certificates / "server.pem",
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": certificates / "certificate.pem",
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "want",
    }
    ensemble = own_ensemble(secure=True, **secure)
    hosts = f"127.0.0.1:{ensemble.servers[0].secure_port}"
    manager = manager_at(hosts, root, tls=True, ca=certificates / "certificate.pem")
    manager.write(manager.claim(TASK), checkpoint(1), after=None)
    assert ids_of(1) == manager.ids(TASK)
    manager.close()

    for settings in ({"tls": True}, {}):
        blind = manager_at(hosts, root, timeout=timedelta(seconds=2), **settings)
        with pytest.raises(TransientError, match="majority"):
            blind.read_last(TASK)
        blind.close()


def test_a_secret_is_made_of_a_text():
    """Whoever writes a text for the password has a secret from then on."""
    settings = ZooKeeperSettings(hosts="zk1", user="a", password="b")

    assert isinstance(settings.password, Secret)
    assert "b" == settings.password.reveal()
