"""Where a backend's commands run and its files lie: on this machine, or on another over one shared ssh connection.

Commands are argv lists. Environments are cleaned [security S10]. Files are private from their first moment, and secrets in them
travel through standard input only [security S12].
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from shoal.model.errors import BadInput
from shoal.provision.backend import BackendError, Command, Result
from shoal.provision.site_url import SiteUrl

TIMEOUT = 60.0
MAX_OUTPUT = 16 * 2**20  # of one command and stream; a line of squeue has about 100 bytes
MAX_SOCKET_PATH = 80  # ssh appends 17 characters while it makes the socket, and 104 is the least limit of a system
CONNECT_TIMEOUT = 15
PERSIST = 600  # seconds after which an unused connection ends by itself
SEARCHED = (
    "/usr/local/bin:/usr/bin:/bin:/opt/slurm/bin:/usr/local/slurm/bin:/opt/pbs/bin"  # after the PATH that there is
)
KEPT = frozenset(
    {"HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_RUNTIME_DIR", "KRB5CCNAME"}
    | {"SSH_AUTH_SOCK", "SLURM_CONF", "SGE_ROOT", "SGE_CELL", "SGE_CLUSTER_NAME", "SGE_QMASTER_PORT", "SGE_EXECD_PORT"}
    | {"PBS_CONF_FILE", "PBS_DEFAULT", "PBS_SERVER", "LSF_ENVDIR", "LSF_SERVERDIR", "LSF_LIBDIR", "LSF_BINDIR"}
    | {"CONDOR_CONFIG", "KUBECONFIG"}
)
BEGIN = b"shoal-output-begins\n"  # what a login prints before it, from a .bashrc, is no output of the command
# A login may have any shell: only sh is relied upon, and what it gets is one line.
REMOTE = f'echo shoal-output-begins; PATH="$PATH:{SEARCHED}"; export PATH; exec "$@"'
# The length shows whether all has come; `set -C` opens with O_EXCL.
PUT = (
    'umask 077; set -C; part="$1.part.$$"; cat >"$part" || exit; '
    'if [ "$(wc -c <"$part")" -eq "$2" ]; then chmod "$3" "$part" && mv -f "$part" "$1"; '
    'else rm -f "$part"; echo "the file did not come whole" >&2; exit 1; fi'
)
MAKE = (
    'umask 077; mkdir -p "$1" && if [ -O "$1" ] && [ -d "$1" ]; then chmod 700 "$1"; '
    'else echo "$1 is not a directory of this account" >&2; exit 1; fi'
)
TAIL = 'if [ -f "$1" ]; then tail -c "$2" "$1"; fi'


class Shell(Protocol):
    """What a provisioner does at a site. Failures are BackendError."""

    def run(self, command: Command, timeout: float = TIMEOUT) -> Result:
        """Run a command to its end. An exit status other than 0 is a result; no program or no end is an error."""

    def put(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """Write a file whole or not at all; nobody else can read it at any moment."""

    def read_tail(self, path: str, limit: int) -> bytes:
        """The last bytes of a file; none if there is no such file."""

    def remove(self, paths: Sequence[str]) -> None:
        """Remove files; those that are gone already do no harm."""

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it, 0700; one that is there must be this account's."""

    def close(self) -> None:
        """End what was opened."""


def clean_environment(env: Mapping[str, str]) -> dict[str, str]:
    """What batch tools need of an environment, and no variable more."""
    kept = {name: value for name, value in env.items() if name in KEPT}
    return {**kept, "PATH": f"{env['PATH']}:{SEARCHED}" if env.get("PATH") else SEARCHED}


class LocalShell:
    """This machine."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self._env = clean_environment(os.environ if env is None else env)

    def run(self, command: Command, timeout: float = TIMEOUT) -> Result:
        """Run a command here."""
        status, out, err = run_bounded(command.argv, command.stdin.encode(), timeout, self._env)
        return Result(status, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    def put(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """Write beside the file, and rename."""
        _check_mode(mode)
        part = f"{path}.part.{os.getpid()}"
        try:
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(data)
                os.replace(part, path)
            except OSError:
                os.unlink(part)
                raise
        except OSError as error:
            raise _file_error("write", path, error) from error

    def read_tail(self, path: str, limit: int) -> bytes:
        """Seek from the end."""
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - limit))
                return file.read(limit)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise _file_error("read", path, error) from error

    def remove(self, paths: Sequence[str]) -> None:
        """Unlink each."""
        for path in paths:
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass
            except OSError as error:
                raise _file_error("remove", path, error) from error

    def make_directory(self, path: str) -> None:
        """Parents that are missing become private, too."""
        try:
            missing = [path]
            while (above := os.path.dirname(missing[-1])) and not os.path.exists(above):
                missing.append(above)
            for folder in reversed(missing):
                if not os.path.isdir(folder):
                    os.mkdir(folder, 0o700)
            found = os.stat(path)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                raise BackendError(f"{path} is not a directory of this account", hint="remove it, or name another")
            if stat.S_IMODE(found.st_mode) != 0o700:
                os.chmod(path, 0o700)
        except OSError as error:
            raise _file_error("make", path, error) from error

    def close(self) -> None:
        """Nothing is open."""


class SshShell:
    """Another machine, by the OpenSSH client with the person's own configuration; one connection serves all commands."""

    def __init__(self, url: SiteUrl, env: Mapping[str, str] | None = None, options: Sequence[str] = ()) -> None:
        """`options` are more arguments for ssh, such as ("-F", FILE)."""
        if not url.host or url.target.startswith("-"):
            raise BadInput("no host for ssh", code="bad_site_url", field="url")
        self.target = url.target
        self._env = clean_environment(os.environ if env is None else env)
        self._options = (*options, *(("-p", str(url.port)) if url.port else ()))
        self._directory = ""

    @property
    def socket(self) -> str:
        """Where the shared connection listens, in a directory that only this account can enter."""
        if not self._directory:
            runtime = self._env.get("XDG_RUNTIME_DIR", "")
            fits = len(runtime) + 20 < MAX_SOCKET_PATH and os.path.isdir(runtime) and os.access(runtime, os.W_OK)
            self._directory = tempfile.mkdtemp(prefix="shoal-", dir=runtime if runtime and fits else "/tmp")
        return f"{self._directory}/m"

    def run(self, command: Command, timeout: float = TIMEOUT) -> Result:
        """Run a command there."""
        status, out, err = self._run(command.argv, command.stdin.encode(), timeout)
        return Result(status, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    def put(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """Through standard input."""
        _check_mode(mode)
        self._expect(("sh", "-c", PUT, "sh", path, str(len(data)), f"{mode:o}"), data)

    def read_tail(self, path: str, limit: int) -> bytes:
        """With `tail`."""
        return self._expect(("sh", "-c", TAIL, "sh", path, str(limit)))

    def remove(self, paths: Sequence[str]) -> None:
        """With `rm`."""
        if paths:
            self._expect(("rm", "-f", "--", *paths))

    def make_directory(self, path: str) -> None:
        """With `mkdir`."""
        self._expect(("sh", "-c", MAKE, "sh", path))

    def tunnel_argv(self) -> tuple[str, ...]:
        """How ssh is called for a tunnel, up to the destination: a connection of its own, which may end and begin again."""
        return ("ssh", "-o", "ControlMaster=no", "-o", "ControlPath=none", *self._options, self.target)

    def close(self) -> None:
        """End the shared connection and whatever goes through it."""
        if self._directory:
            if os.path.exists(self.socket):
                argv = ("ssh", "-S", self.socket, *self._options, "-O", "exit", "--", self.target)
                with contextlib.suppress(BackendError):  # it ends by itself when it is not used
                    run_bounded(argv, b"", 10.0, self._env)
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = ""

    def _expect(self, argv: tuple[str, ...], stdin: bytes = b"") -> bytes:
        status, out, err = self._run(argv, stdin, TIMEOUT)
        if status != 0:
            said = Result(status, "", err.decode("utf-8", "replace")).tail
            raise BackendError(
                f"{self.target}: {said}", hint="see whether its disk is full or its home is not writable"
            )
        return out

    def _run(self, argv: tuple[str, ...], stdin: bytes, timeout: float) -> tuple[int, bytes, bytes]:
        ends = time.monotonic() + timeout
        self._connect(timeout)
        line = shlex.join(("sh", "-c", REMOTE, "sh", *argv))
        ssh = ("ssh", "-S", self.socket, "-o", "ControlMaster=no", *_QUIET, *self._options, "--", self.target, line)
        status, out, err = run_bounded(ssh, stdin, max(1.0, ends - time.monotonic()), self._env)
        _, begin, printed = out.partition(BEGIN)
        if not begin:  # the command was not even started
            self._forget_connection()
            raise explain(self.target, err.decode("utf-8", "replace") or out.decode("utf-8", "replace"))
        return status, printed, err

    def _connect(self, timeout: float) -> None:
        """Start the process that keeps the connection, unless it runs.

        It lives on in the background with the files that it was given: it gets no pipe, whose end we would await.
        """
        if os.path.exists(self.socket):
            return
        argv = ("ssh", "-f", "-N", "-M", "-S", self.socket, "-o", f"ControlPersist={PERSIST}", *_QUIET)
        with open(f"{self._directory}/err", "w+b") as said:
            os.chmod(said.name, 0o600)
            null = subprocess.DEVNULL
            try:
                master = subprocess.Popen(
                    (*argv, *self._options, "--", self.target), stdin=null, stdout=null, stderr=said, env=self._env
                )
            except FileNotFoundError as error:
                raise BackendError("ssh is not installed here", hint="install the OpenSSH client") from error
            try:
                status = master.wait(timeout)
            except subprocess.TimeoutExpired:
                master.kill()
                master.wait()
                raise explain(self.target, "Connection timed out") from None
            said.seek(0)
            text = said.read(4096).decode("utf-8", "replace")
        if status != 0:
            raise explain(self.target, text)

    def _forget_connection(self) -> None:
        """The next command makes a new one."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)


# Never a question: nobody would answer. A dead connection is noticed within 45 s.
_QUIET = (
    *("-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_TIMEOUT}"),
    *("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3"),
)
_FIXES = (  # what ssh says, and what helps
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its key is not the one that you know: ask its administrators before you trust it",
    ),
    ("Host key verification failed", "log in once by hand, `ssh {}`, and compare the key"),
    (
        "Permission denied",
        "no key was accepted: `ssh {} true` must work without a password; see ssh-add and ssh-copy-id",
    ),
    ("Too many authentication failures", "choose one key with IdentityFile and IdentitiesOnly in ~/.ssh/config"),
    ("Could not resolve hostname", "check the name, or give it a Host entry in ~/.ssh/config"),
    ("Connection refused", "no ssh server listens there: check host and port"),
    ("timed out", "no answer: check the network, a VPN, or ProxyJump in ~/.ssh/config"),
    ("No route to host", "check the network, a VPN, or ProxyJump in ~/.ssh/config"),
    ("Network is unreachable", "check the network"),
)


def explain(target: str, said: str) -> BackendError:
    """What ssh said, and how to fix it."""
    hint = next((fix.format(target) for words, fix in _FIXES if words in said), f"try `ssh {target} true`")
    error = BackendError(f"ssh to {target} failed: {Result(255, '', said).tail}", hint=hint)
    error.transient = True
    return error


def run_bounded(argv: Sequence[str], stdin: bytes, timeout: float, env: Mapping[str, str]) -> tuple[int, bytes, bytes]:
    """Run a program; raises BackendError if there is none, if it does not end in time, or if it prints without end."""
    program = argv[0]
    if any("\0" in argument for argument in argv):
        raise BadInput("an argument holds a NUL character", code="bad_batch_value", field=program)
    where = shutil.which(program, path=env.get("PATH"))
    if where is None:
        hint = "install the batch system's client here, or put it on PATH"
        raise BackendError(f"{program} was not found", hint=hint)
    pipe = subprocess.PIPE
    try:
        child = subprocess.Popen(
            argv, executable=where, stdin=pipe, stdout=pipe, stderr=pipe, env=dict(env), cwd="/", start_new_session=True
        )
    except OSError as error:
        raise BackendError(f"{program} cannot be run: {error.strerror or error}") from error
    with child:
        try:
            out, err = _exchange(child, program, stdin, time.monotonic() + timeout)
            return child.wait(max(0.1, timeout)), out, err
        except subprocess.TimeoutExpired as error:
            said = Result(0, "", (error.stderr or b"").decode("utf-8", "replace")).tail
            problem = BackendError(
                f"{program} did not end within {timeout:g} s: {said}", hint="the batch system may be overloaded"
            )
            problem.transient = True
            raise problem from None
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)  # it is the leader of its group and not yet reaped


def _exchange(child: subprocess.Popen[bytes], program: str, stdin: bytes, ends: float) -> tuple[bytes, bytes]:
    """Feed a process and read what it prints, until it closes both streams, or ends and leaves them to another."""
    assert child.stdin and child.stdout and child.stderr
    parts: dict[int, bytearray] = {child.stdout.fileno(): bytearray(), child.stderr.fileno(): bytearray()}
    left = memoryview(stdin)
    with selectors.DefaultSelector() as selector:
        for stream in (child.stdout, child.stderr):
            selector.register(stream, selectors.EVENT_READ)
        os.set_blocking(child.stdin.fileno(), False)
        selector.register(child.stdin, selectors.EVENT_WRITE)
        while selector.get_map():
            ready = selector.select(min(1.0, max(0.0, ends - time.monotonic())))
            for key, _ in ready:
                if key.fileobj is child.stdin:
                    try:
                        left = left[os.write(key.fd, left[:65536]) :] if left else left
                    except BrokenPipeError:
                        left = memoryview(b"")
                    if not left:
                        selector.unregister(child.stdin)
                        child.stdin.close()
                    continue
                data = os.read(key.fd, 65536)
                if not data:
                    selector.unregister(key.fileobj)
                parts[key.fd] += data
                if len(parts[key.fd]) > MAX_OUTPUT:
                    raise BackendError(f"{program} printed more than {MAX_OUTPUT} bytes")
            if not ready and child.poll() is not None:
                break  # a process in the background holds the streams
            if time.monotonic() >= ends:
                err = bytes(parts[child.stderr.fileno()])
                raise subprocess.TimeoutExpired(program, 0.0, stderr=err)
    return bytes(parts[child.stdout.fileno()]), bytes(parts[child.stderr.fileno()])


def _check_mode(mode: int) -> None:
    if mode & 0o077:
        raise ValueError("files at a site are private")


def _file_error(what: str, path: str, error: OSError) -> BackendError:
    return BackendError(f"cannot {what} {path}: {error.strerror}", hint="check the space and the rights there")
