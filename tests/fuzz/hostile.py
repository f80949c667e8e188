"""Pieces of input that have broken programs before, and marks that show where an output let one through."""

MARK = "fuzz-marker"
"""Words of an input that were made into markup show as a tag or an attribute of this name."""
TAG = f"<{MARK} onerror=alert(1)>"
ATTRIBUTE = f"\" {MARK}=1 x='"
FORGED = "FORGEDLINE"
"""A line of an output that starts with this is an input's line that looks like one of gpucheck's."""
FORMULA = "=FUZZ(1)"

NUMBERS = (
    *("0", "-1", "1", "255", "65536", "2147483648", "9223372036854775807", "9223372036854775808"),
    *("18446744073709551616", "1" + "0" * 30, "1" + "0" * 400, "9" * 5000, "-0.0", "0.1", "1e308", "5e-324"),
    *("1e-320", "1e999", "-1e999", "NaN", "Infinity", "-Infinity", ".nan", ".inf", "0x7fffffff", "0o777", "1_000"),
    *("00", "01", "1e5", "+1", "\uff11\uff12", "\u0663", "\u00b2"),
)
STRINGS = (
    *("", " ", "null", "~", "true", "unknown", "None", "N/A", "[Not Supported]", "\n", "\t", "\r", "\r\n", "\0"),
    *("\x1b[2J", "\x1b]0;owned\x07", "\x9b31m", "\x07", "\x08", "\x7f", "\u202e", "\u2066", "\u200b", "\ufeff"),
    *("\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\ufffd", "\uffff", "é", "Ⅷ", "İ", "ß", "\U0001f600", "a\u0301"),
    *(TAG, ATTRIBUTE, f"</script>{TAG}", f"]]>{TAG}", f"-->{TAG}", f"x\n{FORGED}  99 hosts", f"x\r{FORGED}"),
    *(f"x\u2028{FORGED}", FORMULA, f"\t{FORMULA}", "@SUM(1)", "+1+1", "-1+1", "|", "'", '"', "\\", "`", "{", "}"),
    *("{{ 7 * 7 }}", "{% raw %}", "{{ lookup('pipe', 'id') }}", "${HOME}", "$(id)", "`id`", ";id", "&&", "%s%n%d"),
    *("{0.__class__}", "%(x)s", "../../../etc/passwd", "/etc/passwd", "..", ".", "a/b", "-", "--", "-o", "--help"),
    *("1;2", "a,b", "a b", "a=b", "a:b", "#", "*", "?", "[", "]", "\\x0aFORGEDLINE", "\\u0000", "\\ud800", "%00"),
    *("9999-99-99T99:99:99Z", "0000:00:00.0", "ffffffff:ff:1f.7", "GPU-0", "NV0", "NV999", "X", "SOC", "127.0.0.1"),
)
LONG = (
    *("A", "é", "0", "9", "a.", "../", "[", "{", "(", " ", "\t", "a,", "a b ", "-", "\\", '"', "0-", ": ", "\n"),
    *("GPU0 ",),
)
# One a format: what its parsers find hard.
YAML = (
    *("!!python/object/apply:os.system [id]", "!!timestamp x", '!!float ""', '!!int ""', "!!bool x", "!!binary ="),
    *("!!set", "!!null 1", "!!str", "!!omap", "&a [*a]", "*a", "&a", "<<: *a", "<<: {a: 1}", "? x", "---", "..."),
    *("%YAML 9.9", "- ", "- " * 300, "- " * 30000, "[" * 300, "{a: " * 300, "? " * 300, "a:\n " * 100, "|", ">"),
    *("|9", "|-", "'", '"', "@", "0x", "0b", "0o8", "1:2:3", "190:20:30.15", "2001-12-14t21:59:43.10-05:00", "="),
    *("y", "off", "\t", "'\\e[2J'", '"\\e[2J"', '"\\u202e"'),
    *("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: &d [*c, *c]\ne: &e [*d, *d]\nf: [*e, *e]",),
)
JSON = (
    *("[" * 2000, '{"a":' * 2000, "[" * 100 + "]" * 100, '"\\ud800"', '"\\u0000"', '"\\u001b[2J"', "1e999", "-"),
    *("1.", ".5", "NaN", "Infinity", "tru", '"', "\\", "//", "/**/", "'a'", ",", ":", "\ufeff", "[]", "{}", "null"),
    *('{"a":1,"a":2}',),
)
XML = (
    *("<!DOCTYPE a [<!ENTITY b 'c'>]>", "&b;", "&#0;", "&#x1b;", "<![CDATA[", "]]>", "<!--", "-->"),
    *("<?xml version='9'?>", "<a>" * 500, "</a>", "xmlns:a='b'", "<a b='" + "c" * 5000 + "'/>"),
)
PASTES = (
    *("GPU0", "GPU1", "GPU63", "GPU999999999", "NIC0", "mlx5_0", "CPU Affinity", "NUMA Affinity", "NV18", "PIX", "PXB"),
    *("PHB", "NODE", "SYS", "\x1b[4m", "[0m", "#012", "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x", "\\x0a"),
    *("0-7,16-23", "0-99999999", "# nThread", "float     sum", "GB/s", "Device: 0, ", "P2P=Enabled", "D\\D", "inf"),
)
EVERYWHERE = (*NUMBERS, *STRINGS, *JSON, *YAML, *XML, *PASTES)
