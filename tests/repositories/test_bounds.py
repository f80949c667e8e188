"""Indexes made to exhaust their reader, to leave their mirror, or to be read in two ways: each costs its own row."""

import gzip
import tracemalloc

import pytest

from gpucheck.repositories import apt, dnf, index
from gpucheck.repositories.comparison import _dependencies, _names_like
from gpucheck.repositories.fetching import Access, Network
from gpucheck.repositories.index import Catalog, Index, Package, Relation, UnusableIndex
from gpucheck.repositories.reading import read_index
from tests.repositories import mirror
from tests.repositories.conftest import NOW
from tests.repositories.test_reading import RPMS

ROW = b'<package type="rpm"><name>a</name><arch>x86_64</arch><version ver="1" rel="1"/></package>'
ENTRIES = b'<requires><entry name="b"/></requires>'
MIB = 1 << 20


@pytest.fixture
def small(monkeypatch):
    """Bounds that a test reaches quickly."""
    monkeypatch.setattr(index, "MOST", {"packages": 1000, "dependencies": 1000, "elements": 9000})


BOMBS = {"packages": (ROW, 1001), "elements": (b"<a/>", 9001), "dependencies": (ENTRIES, 1001)}


@pytest.mark.parametrize("what", BOMBS)
def test_a_primary_list_with_more_than_any_repository_is_rejected(small, what):
    piece, times = BOMBS[what]
    with pytest.raises(UnusableIndex, match=f"more than {index.MOST[what]} {what}"):
        dnf.read_primary([b"<metadata>", *(piece for _ in range(times))])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"Package: a\nVersion: 1\nArchitecture: all\n\n" * 1001, "packages"),
        (b"Package: a\nVersion: 1\nArchitecture: all\nDepends: " + b"b," * 1001 + b"\n\n", "dependencies"),
        (b"Package: a\nVersion: 1\nArchitecture: all\nProvides: " + b"b|" * 1001 + b"\n\n", "dependencies"),
    ],
)
def test_a_package_list_with_more_than_any_repository_is_rejected(small, text, what):
    with pytest.raises(UnusableIndex, match=f"more than 1000 {what}"):
        apt.read_packages(apt.lines_of([text]))


@pytest.mark.parametrize("start", [b"<a b='", b"<!--", b"<", b"<?pi ", b"<![CDATA["])
def test_an_endless_token_is_not_read_again_with_every_piece(start):
    with pytest.raises(UnusableIndex, match=r"more than (20|1) MiB|is not XML"):
        dnf.read_primary([b"<m>" + start, *(b"x" * MIB for _ in range(30))])


def test_an_endless_text_or_line_is_not_kept():
    with pytest.raises(UnusableIndex, match="a text of more than 1 MiB"):
        dnf.read_primary([b"<a>", *(b"x" * 65536 for _ in range(100))])
    with pytest.raises(UnusableIndex, match="a line of more than 1 MiB"):
        apt.read_packages(apt.lines_of(b"x" * 65536 for _ in range(100)))


def test_memory_follows_the_packages_and_not_the_bytes():
    text = b"Package: a\nVersion: 1\nArchitecture: all\nDescription: " + b"x" * 9000 + b"\n\n"
    tracemalloc.start()
    found = apt.read_packages(apt.lines_of(text * 100 for _ in range(100)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found["a"]) == 10_000
    assert peak < 30 * MIB


def test_pieces_are_cut_anywhere():
    """In the middle of a character, a line and a tag."""
    text = "Package: \u00e4\nVersion: 1\nArchitecture: all\nDepends: b (>= 2),\n c\n\n".encode()
    complete = apt.read_packages(apt.lines_of([text]))
    assert complete["\u00e4"][0].requires == ((Relation("b", ">=", "2"),), (Relation("c", "", ""),))
    assert apt.read_packages(apt.lines_of(bytes([one]) for one in text)) == complete
    row = b"<metadata>" + ROW.replace(b">a<", ">\u00e4<".encode()) + b"</metadata>"
    assert dnf.read_primary(bytes([one]) for one in row) == dnf.read_primary([row])


def test_lines_of_a_value_are_joined_once():
    """Each line was joined to all before it: 16 MiB took minutes."""
    (found,) = apt.paragraphs(["SHA256:", *(f" {'0' * 64} 1 {number}" for number in range(200_000))])
    assert found["sha256"].count("\n") == 200_000


LISTED = f"SHA256:\n {'0' * 64} 1 Packages"


@pytest.mark.parametrize("name", ["Valid-Until", "valid-until", "VALID-UNTIL", "Valid-Until "])
def test_field_names_are_the_same_in_any_case(name):
    with pytest.raises(UnusableIndex, match="expired on 2025-11-01"):
        apt.read_release(f"{name}: Sat, 01 Nov 2025 10:00:00 UTC\n{LISTED}\n", NOW)


@pytest.mark.parametrize("again", ["Valid-Until", "valid-until", "sha256"])
def test_a_field_that_is_stated_twice_is_rejected(again):
    first = "Valid-Until: Sat, 01 Nov 2025 10:00:00 UTC"
    with pytest.raises(UnusableIndex, match=f"states {again} twice"):
        apt.read_release(f"{first}\n{LISTED}\n{again}: Sat, 01 Nov 2035 10:00:00 UTC\n", NOW)


@pytest.mark.parametrize("other", [f" {'1' * 64} 1 Packages", f" {'0' * 64} 2 Packages"])
def test_a_list_that_a_release_file_names_twice_is_rejected_unless_both_are_equal(other):
    assert apt.read_release(f"{LISTED}\n {'0' * 64} 1 Packages\n", NOW).files
    with pytest.raises(UnusableIndex, match="lists Packages twice, differently"):
        apt.read_release(f"{LISTED}\n{other}\n", NOW)


CHECKSUM = f"<checksum type='sha256'>{'0' * 64}</checksum>"
PLACE = "<location href='repodata/a.xml'/>"
PRIMARY = f"<data type='primary'>{CHECKSUM}{PLACE}</data>"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (PRIMARY + PRIMARY, "primary"),
        (f"<x:data xmlns:x='x' type='primary'>{PLACE}</x:data>{PRIMARY}", "primary"),
        (f"<data type='primary'>{CHECKSUM}{CHECKSUM}{PLACE}</data>", "primary checksum"),
        (f"<data type='primary'>{CHECKSUM}{PLACE}{PLACE}</data>", "primary location"),
    ],
)
def test_an_element_of_repomd_that_is_stated_twice_is_rejected(text, what):
    assert dnf.read_repomd(f"<repomd>{PRIMARY}</repomd>".encode()).location == "repodata/a.xml"
    with pytest.raises(UnusableIndex, match=f"states {what} twice"):
        dnf.read_repomd(f"<repomd>{text}</repomd>".encode())


@pytest.mark.parametrize(
    ("again", "what"),
    [
        (b"<name>b</name>", "name"),
        (b"<arch>noarch</arch>", "arch"),
        (b"<version ver='9' rel='9'/>", "version"),
        (b"<package><name>b</name></package>", "package"),
    ],
)
def test_an_element_of_a_package_that_is_stated_twice_is_rejected(again, what):
    row = ROW.replace(b"</package>", again + b"</package>")
    assert dnf.read_primary([b"<metadata>", ROW, ROW, b"</metadata>"])["a"]
    with pytest.raises(UnusableIndex, match=f"states {what} twice"):
        dnf.read_primary([b"<metadata>", row, b"</metadata>"])


@pytest.mark.parametrize(
    ("stated", "right"),
    [
        ("Suite: stable\nCodename: bookworm\n", True),
        ("Suite: bookworm\nCodename: other\n", True),
        ("", True),
        ("Suite: oldstable\nCodename: bullseye\n", False),
        ("codename: bullseye\n", False),
    ],
)
def test_the_index_of_another_suite_is_rejected(stated, right):
    """The same key signs all of them."""
    text = f"{stated}{LISTED}\n"
    assert apt.read_release(text, NOW).files
    if right:
        assert apt.read_release(text, NOW, "bookworm").files
    else:
        with pytest.raises(UnusableIndex, match=r"the index is of bullseye.*, and the repository's suite is bookworm"):
            apt.read_release(text, NOW, "bookworm")


@pytest.mark.parametrize("place", ["../../secret", "repodata/../../../secret", "%2e%2e/%2e%2e/secret", "a%2fb", "x%00"])
def test_a_list_outside_the_mirror_is_not_read(tmp_path, publisher, place):
    """A checksum that fits or not would tell what a file of this machine holds."""
    root = tmp_path / "mirror/el9"
    mirror.dnf(root, publisher, RPMS)
    (tmp_path / "secret").write_bytes(gzip.compress(b"<metadata>" + ROW + b"</metadata>"))
    repomd = root / "repodata/repomd.xml"
    before, _, rest = repomd.read_text().partition('href="')
    repomd.write_text(f'{before}href="{place}"{rest.partition(chr(34))[2]}')

    row = publisher.row(root, "dnf", signed="packages")
    with pytest.raises(UnusableIndex, match="not a usable path"):
        read_index(row, "x86_64", Network(Access(seconds=60)), NOW)


def package(name, requires=(), provides=()):
    return Package(name, "1-1", "x86_64", 1, tuple((one,) for one in requires), tuple(provides))


def catalog_of(rows):
    return Catalog("dnf", [Index("dnf", rows, "", None)], "x86_64")


def test_a_long_chain_of_dependencies_is_followed_in_linear_time():
    count = 20_000
    rows = {f"p{n}": (package(f"p{n}", [Relation(f"p{n + 1}", "", "")]),) for n in range(count)}
    catalog = catalog_of(rows)
    problems, brought = _dependencies([rows["p0"][0]], catalog)

    assert (problems, len(brought)) == ([], count - 1)
    assert index.MOST_COMPARED - catalog.left < 4 * count


def test_many_that_require_what_many_provide_end_at_the_bound(monkeypatch):
    monkeypatch.setattr(index, "MOST_COMPARED", 10_000)
    rows = {f"p{n}": (package(f"p{n}", (), [Relation("x", "=", "1")]),) for n in range(300)}
    first = package("first", [Relation("x", ">", str(n)) for n in range(2, 300)])

    with pytest.raises(UnusableIndex, match="more than 10000 comparisons") as error:
        _dependencies([first], catalog_of({**rows, "first": (first,)}))
    assert not error.value.rejected


def test_names_like_a_missing_one_are_sought_among_a_bounded_number():
    wanted = {"nvidia-utils": (package("nvidia-utils"),)}
    assert _names_like("nvidia-utilz", catalog_of(wanted)) == ("nvidia-utils",)
    assert _names_like("nvidia-utilz", catalog_of({f"q{n}": (package(f"q{n}"),) for n in range(30_000)} | wanted)) == ()
