"""Runs the example as real processes on this machine: a SuperLink with TLS, and SuperNodes that authenticate.

    python deploy.py --nodes 5 --kill 1

Certificates and keys are made afresh in a temporary folder, everything listens on loopback, nothing is fetched. With
``--kill 1`` one SuperNode is killed while the votes are being summed; the outcome is printed as one JSON object.
"""

from __future__ import annotations

import argparse
import datetime
import ipaddress
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent


def certificates(folder: Path) -> None:
    """Write a certificate authority and a server certificate for loopback."""
    now = datetime.datetime.now(datetime.UTC)

    def build(
        name: str, key: ec.EllipticCurvePrivateKey, issuer: x509.Name | None, signer: ec.EllipticCurvePrivateKey
    ) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer or subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(signer, hashes.SHA256())
        )

    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root = build("example authority", authority, None, authority)
    leaf = build("localhost", server, root.subject, authority)
    pem = serialization.Encoding.PEM
    (folder / "ca.crt").write_bytes(root.public_bytes(pem))
    (folder / "server.pem").write_bytes(leaf.public_bytes(pem))
    private = server.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "server.key").write_bytes(private)


def node_key(folder: Path, index: int) -> None:
    """Write the key pair with which a SuperNode authenticates."""
    key = ec.generate_private_key(ec.SECP384R1())
    ssh = serialization.PublicFormat.OpenSSH
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    (folder / f"node-{index}").write_bytes(private)
    (folder / f"node-{index}.pub").write_bytes(key.public_key().public_bytes(serialization.Encoding.OpenSSH, ssh))


def free_port() -> int:
    """Return a port on loopback that is free now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in its own process group, and end the whole group afterwards."""
    with log.open("wb") as out:
        started = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
    try:
        yield started
    finally:
        end_group(started)


def end_group(started: subprocess.Popen[bytes], how: int = signal.SIGTERM) -> None:
    """End a process and its children."""
    for kind in (how, signal.SIGKILL):
        try:
            os.killpg(started.pid, kind)
        except ProcessLookupError:
            return
        try:
            started.wait(timeout=5)
        except subprocess.TimeoutExpired:
            continue


def has_charged(ledger: Path) -> bool:
    """Tell whether a client has written its charge, which it does just before its masked ballot leaves."""
    if not ledger.exists():
        return False
    try:
        with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True, timeout=1)) as connection:
            return bool(connection.execute("SELECT COUNT(*) FROM charges").fetchone()[0])
    except sqlite3.OperationalError:
        return False


def flwr(folder: Path, environment: dict[str, str], *arguments: str) -> str:
    """Run Flower's command line and return what it printed."""
    done = subprocess.run(
        [str(BIN / "flwr"), *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    (folder / "flwr.log").open("a").write(done.stdout + done.stderr)
    if done.returncode:
        raise SystemExit(f"flwr {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def deploy(folder: Path, nodes: int, kill: int, epsilon: float, timeout: float) -> dict[str, object]:
    """Start everything, run the vote, and return its outcome."""
    certificates(folder)
    port, home = free_port(), folder / "flwr"
    home.mkdir()
    connection = f'[superlink.here]\naddress = "127.0.0.1:{port}"\nroot-certificates = "{folder / "ca.crt"}"\n'
    (home / "config.toml").write_text(f'[superlink]\ndefault = "here"\n\n{connection}')
    environment = os.environ | {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }
    tls = ["--ssl-ca-certfile", str(folder / "ca.crt"), "--ssl-certfile", str(folder / "server.pem")]
    tls += ["--ssl-keyfile", str(folder / "server.key")]
    link = [str(BIN / "flower-superlink"), *tls, "--enable-supernode-auth", "--port", str(port)]
    link.append("--disable-runtime-dependency-installation")
    outcome = folder / "outcome.json"
    started: list[subprocess.Popen[bytes]] = []
    with process(link, folder / "superlink.log", environment) as superlink:
        wait_for_port(port, superlink)
        for i in range(nodes):
            node_key(folder, i)
            flwr(folder, environment, "supernode", "register", str(folder / f"node-{i}.pub"), "here")
        try:
            for i in range(nodes):
                started.append(supernode(folder, i, nodes=nodes, port=port, epsilon=epsilon, environment=environment))
            settings = f'epsilon={epsilon} votes=1 clients={nodes} rounds=0 stage-timeout={timeout} outcome="{outcome}"'
            began = time.monotonic()
            flwr(folder, environment, "run", str(HERE), "here", "--run-config", settings)
            killed: list[int] = []
            while not outcome.exists() and time.monotonic() < began + 12 * timeout:
                if len(killed) < kill and has_charged(folder / f"node-{len(killed)}.ledger"):
                    end_group(started[len(killed)], signal.SIGKILL)
                    killed.append(len(killed))
                time.sleep(0.01)
            if not outcome.exists():
                raise SystemExit(f"No outcome:\n{(folder / 'superlink.log').read_text()[-4000:]}")
            time.sleep(0.2)
            return json.loads(outcome.read_text()) | {"killed": killed, "seconds": round(time.monotonic() - began, 1)}
        finally:
            for one in started:
                end_group(one)


def supernode(
    folder: Path, index: int, *, nodes: int, port: int, epsilon: float, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start one SuperNode with its own key, partition and ledger."""
    config = (
        f'partition-id={index} num-partitions={nodes} max-epsilon={epsilon} ledger="{folder / f"node-{index}.ledger"}"'
    )
    command = [str(BIN / "flower-supernode"), "--superlink", f"127.0.0.1:{port}", "--port", str(free_port())]
    command += ["--root-certificates", str(folder / "ca.crt")]
    command += ["--auth-supernode-private-key", str(folder / f"node-{index}"), "--node-config", config]
    with (folder / f"node-{index}.log").open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)


def wait_for_port(port: int, started: subprocess.Popen[bytes]) -> None:
    """Wait until a server listens."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if started.poll() is not None:
            raise SystemExit("The SuperLink ended at once; its log says why.")
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit("The SuperLink does not listen.")


def main() -> None:
    """Read the command line and print the outcome."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--kill", type=int, default=1, choices=(0, 1))
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for each stage")
    parser.add_argument("--folder", type=Path, default=None, help="keep keys and logs here")
    options = parser.parse_args()
    if options.folder is not None:
        options.folder.mkdir(parents=True)
        print(
            json.dumps(deploy(options.folder.resolve(), options.nodes, options.kill, options.epsilon, options.timeout))
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(deploy(Path(folder), options.nodes, options.kill, options.epsilon, options.timeout)))


if __name__ == "__main__":
    main()
