"""A real Apache Kafka that asks for TLS and a password, for tests of refusals."""

import subprocess
from pathlib import Path
from typing import Final

from tests.service.servers import KafkaServer, free_ports
from tests.support.runtime.certificates import self_signed

USER: Final = "kernelcast"
PASSWORD: Final = "right"


class SecuredKafka(KafkaServer):
    """One node with three listeners for clients.

    Attributes:
        plaintext: Address without TLS and login.
        secured: Address with TLS and SASL/PLAIN; its certificate is `authority`.
        expired: Address with TLS alone, and a certificate that has expired.
        authority: File that clients trust for `secured`.
        expired_authority: File that clients trust for `expired`.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.authority, key = self_signed(directory, "broker")
        self.expired_authority, expired_key = _expired(directory)
        self.plaintext = self.bootstrap_servers
        self.secured, self.expired = (f"127.0.0.1:{port}" for port in free_ports(2))
        stores = _pem(self.authority, key), _pem(self.expired_authority, expired_key)
        ours = f"PLAINTEXT://{self.plaintext},SECURED://{self.secured},EXPIRED://{self.expired}"
        with self._properties.open("a") as file:
            file.write(f"""
listeners={ours},CONTROLLER://127.0.0.1:{self.controller_port}
advertised.listeners={ours}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL,EXPIRED:SSL
listener.name.secured.ssl.keystore.type=PEM
listener.name.secured.ssl.keystore.location={stores[0]}
listener.name.expired.ssl.keystore.type=PEM
listener.name.expired.ssl.keystore.location={stores[1]}
sasl.enabled.mechanisms=PLAIN
listener.name.secured.plain.sasl.jaas.config=\\
org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";
""")


def _expired(directory: Path) -> tuple[Path, Path]:
    """A certificate whose time is over, and its key."""
    certificate, key, request = (directory / f"expired.{suffix}" for suffix in ("crt", "key", "csr"))
    names = ["-subj", "/CN=expired", "-addext", "subjectAltName=IP:127.0.0.1"]
    new = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", *names]
    subprocess.run([*new, "-keyout", str(key), "-out", str(request)], check=True, capture_output=True)
    sign = ["openssl", "x509", "-req", "-in", str(request), "-signkey", str(key), "-days", "-1"]
    subprocess.run([*sign, "-copy_extensions", "copy", "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key


def _pem(certificate: Path, key: Path) -> Path:
    """Key and certificate in one file, as Kafka wants them."""
    command = ["openssl", "pkcs8", "-topk8", "-nocrypt", "-in", str(key)]
    plain = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    store = certificate.with_suffix(".pem")
    store.write_text(plain + certificate.read_text())
    return store
