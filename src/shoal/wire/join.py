"""The join string: the addresses of a server, the fingerprint of its certificate, and a token [protocol 9].

`ADDRESS[,ADDRESS...]#FINGERPRINT#TOKEN`. An address is `host:port` (TLS, the fingerprint is the SHA-256 of the
server's own CA certificate), `relay:host:port:KEY` (the same behind a relay, which asks for its key first), or
`unix:/path` (this machine and account, no fingerprint; special characters as `%23`).
"""

from __future__ import annotations

import json
import re
import shlex

from shoal.model.credentials import is_relay_key, kind_of, redact
from shoal.model.errors import BadInput
from shoal.model.lazy_dataclass import dataclass
from shoal.wire.http import unix_socket

SERVER_NAME = "shoal-server"  # the name in every server's certificate, whatever its host
MAX_ADDRESSES = 8
_HOST_PORT = r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}"
_TLS = re.compile(_HOST_PORT)
_RELAY = re.compile(f"relay:(?P<tls>{_HOST_PORT}):(?P<key>[A-Za-z0-9_-]*)")  # `relay:8443` is a host of that name
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Join:
    """How to reach a server for the first time."""

    addresses: tuple[str, ...]
    fingerprint: str
    token: str

    def __str__(self) -> str:
        return f"{','.join(self.addresses)}#{self.fingerprint}#{self.token}"

    def __repr__(self) -> str:
        return f"Join({redact(','.join(self.addresses))})"  # no secret in a traceback

    @property
    def place(self) -> str:
        """Where the server is, without the token: what is left at a site for pilots that do not find it any more."""
        return f"{','.join(self.addresses)}#{self.fingerprint}"

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses as URLs, without keys of relays."""
        return tuple(_url_of(address) for address in self.addresses)

    @property
    def relay_keys(self) -> dict[str, str]:
        """The keys of relays by their URLs."""
        return {_url_of(address): key for address in self.addresses if (key := _relay_key(address))}


def relay_address(host: str, port: int, key: str) -> str:
    """A relay as an address in a join string."""
    return f"relay:{f'[{host}]' if ':' in host else host}:{port}:{key}"


def _url_of(address: str) -> str:
    if unix_socket.is_address(address):
        return unix_socket.to_url(address)
    return f"relay://{_tls_part(address)}" if _relay_key(address) else f"https://{address}"


def _tls_part(address: str) -> str:
    """`host:port` of an address that is reached over TLS."""
    found = _RELAY.fullmatch(address)
    return found["tls"] if found is not None else address


def _relay_key(address: str) -> str:
    """The key in the address of a relay; empty: it is another address."""
    found = _RELAY.fullmatch(address)
    return found["key"] if found is not None else ""


def parse_join(text: str) -> Join:
    """The join string, checked; the error never shows its token."""
    parts = text.strip().split("#")
    if len(parts) != 3:
        raise _bad("it has not three parts")
    addresses = tuple(parts[0].split(","))
    if not 1 <= len(addresses) <= MAX_ADDRESSES:
        raise _bad(f"it names {len(addresses)} addresses, 1 to {MAX_ADDRESSES} can be")
    local = all(unix_socket.is_address(address) for address in addresses)
    if not local and not all(_TLS.fullmatch(_tls_part(address)) for address in addresses):
        raise _bad("an address is neither host:port nor unix:/path")
    if not local and not all(0 < int(_tls_part(address).rpartition(":")[2]) < 65536 for address in addresses):
        raise _bad("a port is not between 1 and 65535")
    if not all(is_relay_key(found["key"]) for address in addresses if (found := _RELAY.fullmatch(address))):
        raise _bad("the key of a relay is cut or mistyped")
    if (parts[1] and local) or (not local and not _FINGERPRINT.fullmatch(parts[1])):
        raise _bad("its fingerprint is not 64 hexadecimal digits")
    if kind_of(parts[2]) is None:
        raise _bad("its token is cut or mistyped")
    return Join(addresses, parts[1], parts[2])


def address_file(fingerprint: str) -> str:
    """The name of the file in which the addresses of this server are left: a ticket without token, but with keys of relays."""
    return f"server-{fingerprint[:16]}.ticket"


def parse_place(text: str, join: Join) -> tuple[str, ...]:
    """The addresses of that server, from what was left of it; none if it is of another one, or of no form."""
    try:
        found = parse_join(f"{text.strip()}#{join.token}")
    except BadInput:
        return ()
    return found.addresses if found.fingerprint == join.fingerprint else ()


def _bad(why: str) -> BadInput:
    return BadInput(
        f"this is no join string: {why}", code="bad_join", hint="copy the whole of what `shoal join` printed"
    )


# Every Python there is reads this, also those for which the rest is no Python.
_CHECK = (
    'import sys;sys.version_info<(3,9) and sys.exit("shoal: a pilot needs Python 3.9 or newer, and python3 on this host is "'
    '+sys.version.split()[0]+" (put a newer one before it in PATH)")'
)
# What a host runs before it has anything of ours. The join string comes by standard input and goes on by an open
# file, so no process list ever shows it; the code itself is executed only after its digest was compared. Believed is
# the very certificate (DER) that was compared: text might hold a second one. Without PATH Python may not know itself.
# On this machine the kernel tells the account of the server (SO_PEERCRED) before the token is sent.
_BOOTSTRAP = """\
import sys,os,re,ssl,socket,hashlib,hmac,struct,http.client as c
from urllib.parse import unquote
a,f,t=sys.stdin.readline().strip().split("#")
def end(m):
 print("shoal: "+m,file=sys.stderr);sys.exit(4)
def plain(a):return re.sub(":shoal_rel_[^,]*","",a)
def near(w):
 s=socket.socket(socket.AF_UNIX);s.settimeout(20);d=os.open(os.path.dirname(w),os.O_PATH)
 s.connect("/proc/self/fd/%d/%s"%(d,os.path.basename(w)));os.close(d)
 u=struct.unpack("iII",s.getsockopt(socket.SOL_SOCKET,socket.SO_PEERCRED,12))[1]
 if u not in (os.geteuid(),0):end(w+" is served by another account (uid %d), so nothing was sent to it"%u)
 return s
def relay(x):
 x,_,y=x[6:].rpartition(":");s=far(x);o=os.urandom(32).hex().encode()
 def read(n):
  b=b""
  while len(b)<n:
   d=s.recv(n-len(b))
   if not d:raise OSError("the relay refused")
   b+=d
  return b
 def proof(w):return w+b" "+hmac.new(y.encode(),b" ".join((w,g[14:78],o)),"sha256").hexdigest().encode()+b"\\n"
 g=read(79)
 if g[:14]!=b"shoal-relay/1 ":raise OSError("no relay is there")
 w=proof(b"join");s.sendall(w[:5]+o+w[4:]);v=read(70)
 if not hmac.compare_digest(v,proof(b"open")):raise OSError("the relay cannot go on: "+ascii(v[:4]))
 return s
def far(x):
 h,_,q=x.rpartition(":");return socket.create_connection((h.strip("[]"),int(q)),20)
def get(x,p,k):
 s=near(unquote(x[5:])) if not f else relay(x) if ":shoal_rel_" in x else far(x)
 n=c.HTTPConnection("localhost");n.sock=k.wrap_socket(s,server_hostname="shoal-server") if k else s
 g={"Host":"shoal-server"} if k else {}
 if p!="/v1/ca":g["Authorization"]="Bearer "+t
 n.request("GET",p,headers=g)
 r=n.getresponse();d=r.read(1<<26)
 if r.status!=200:end(plain(x)+" refused: %d %s"%(r.status,d[:300].decode("utf-8","replace")))
 return d
e=None
for x in a.split(","):
 try:
  k=None
  if f:
   u=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT);u.check_hostname=False;u.verify_mode=ssl.CERT_NONE
   p=ssl.PEM_cert_to_DER_cert(get(x,"/v1/ca",u).decode())
   if hashlib.sha256(p).hexdigest()!=f:end("server certificate does not match the join string")
   k=ssl.create_default_context(cadata=p)
   if ssl.HAS_TLSv1_3:k.minimum_version=ssl.TLSVersion.TLSv1_3
  z=get(x,"/v1/pilot.pyz",k);break
 except ssl.SSLCertVerificationError as o:
  end("server certificate does not match: "+str(o.verify_message)+" (is the clock right?)")
 except ValueError:end("server certificate does not match the join string")
 except OSError as o:e=o
else:end("no answer from "+plain(a)+": "+str(e))
if hashlib.sha256(z).hexdigest()!=sys.argv[1]:
 end("the pilot that the server sent is not the one this line names: get a new line from shoal join")
def fd(b):
 m=os.memfd_create("shoal",0)
 with open(m,"wb",closefd=False) as o:o.write(b)
 os.lseek(m,0,0);return m
y=sys.executable or os.readlink("/proc/self/exe")
os.execv(y,[y,"-I","/proc/self/fd/%d"%fd(z),"--join-fd",str(fd("#".join((a,f,t)).encode()))]+sys.argv[2:])
"""


def bootstrap_line(join: Join, pilot_sha256: str, options: tuple[str, ...] = ()) -> str:
    """One line for a shell on any host with Python: it fetches the pilot, checks it and starts it."""
    code = f"{_CHECK};exec({json.dumps(_BOOTSTRAP)})"
    arguments = shlex.join((code, pilot_sha256, *options))
    return f"printf '%s\\n' {shlex.quote(str(join))} | python3 -c {arguments}"
