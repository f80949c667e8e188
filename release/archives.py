"""Archives whose bytes depend on the contents alone: ordered names, one date, owner root, no umask."""

import gzip
import hashlib
import io
import tarfile
from pathlib import Path


def tree(folder: Path, prefix: str = "") -> list[tuple[str, Path]]:
    """(name in the archive, file) of everything in a folder, directories included, ordered by name."""
    return sorted((prefix + path.relative_to(folder).as_posix(), path) for path in folder.rglob("*"))


def tar_gz(entries: list[tuple[str, Path | bytes]], date: int) -> bytes:
    """A .tar.gz of files, directories, links and contents. date: of every member, seconds since 1970."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, given in entries:
            member = tarfile.TarInfo(name)
            member.mtime, member.uname, member.gname = date, "root", "root"
            if isinstance(given, bytes):
                member.size, member.mode = len(given), 0o644
                archive.addfile(member, io.BytesIO(given))
            elif given.is_symlink():
                member.type, member.linkname, member.mode = tarfile.SYMTYPE, str(given.readlink()), 0o777
                archive.addfile(member)
            elif given.is_dir():
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(member)
            else:
                content = given.read_bytes()
                member.size, member.mode = len(content), 0o755 if given.stat().st_mode & 0o100 else 0o644
                archive.addfile(member, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), compresslevel=6, mtime=0)


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
