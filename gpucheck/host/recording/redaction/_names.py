"""Names of hosts, domains and users: learned from places with a known meaning, replaced everywhere."""

import re
from collections.abc import Iterable

from gpucheck.host.recording.redaction._hosts import (
    HOST_VARIABLE,
    LABEL,
    NAME,
    OF_HOSTS,
    host,
    hosts_in,
    in_variable,
    user,
)
from gpucheck.host.recording.redaction._pseudonyms import KEYWORD, Pseudonyms
from gpucheck.host.recording.redaction._rules import part_replaced, rule
from gpucheck.host.recording.redaction._words import GENERIC_USER, NOT_A_NAME, PUBLIC

SHORTEST_NAME = 4  # a host that is called "gpu" would take every "gpu" in the log with it
SHORTEST_USER = 3
# A last part that is a top-level domain and no suffix of file names; with two letters only behind two labels or more.
TOP = (
    r"(?:com|net|org|edu|gov|mil|cloud|lan|local|localdomain|internal|intern|intra|intranet|corp|cluster|hpc|arpa|tech|ac\.[a-z]{2}"
    r"|COM|NET|ORG|EDU|GOV|LOCAL|INTERNAL|CORP|io|ai|de|fr|uk|ch|nl|se|fi|dk|cz|ie|pt|eu|us|ca|au|nz|jp|cn|kr|tw|sg|br|za|ru|ua|il|es)"
)
COUNTRY = r"(?!so\b|py\b|sh\b|ko\b|js\b|ts\b|gz\b|xz\b|rc\b|cc\b|hs\b|go\b|fw\b|db\b)[a-z]{2}"
FULL_NAME = rule(".", rf"(?<![\w.\\@%-])(?:(?:{LABEL}\.)+{TOP}|(?:{LABEL}\.){{2,}}{COUNTRY})(?![\w-]|\.[A-Za-z0-9])")
URL_HOST = rule("://", rf"://(?:[^\s/@]*@)?(?P<n>{NAME})")
SET_IN_TEXT = rule("=", rf"(?<![\w])((?:[A-Z][A-Z0-9]*_)*{OF_HOSTS})=([^\s;\"']+)")
IN_PLACE = (
    rule(
        "hostname= nodename= domain= domainname= host= server= nfsroot=",
        rf"(?i)(?<![\w-])(?:systemd\.hostname|hostname|nodename|nis-domain|domainname|host|domain|bootserver|rootserver|server|nfsroot)=[\"']?(?P<n>{NAME})",
    ),
    rule("hostname", rf"(?i)\bhostname (?:set )?to <?(?P<n>{NAME})>?"),
    rule("server", rf"(?i)\bserver (?P<n>{NAME}) (?:not responding|OK\b|timed out|is not)"),
    rule(
        ":",
        rf"(?m)^(?:[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?"
        rf"|\d{{4}}-\d\d-\d\dT[\d:.,]+(?:Z|[+-]\d\d:?\d\d)?) (?P<n>{NAME}) [\w./-]+(?:\[\d+\])?: ",
    ),
    rule("search domain", rf"(?m)^\s*(?:search|domain)\s+(?P<n>{NAME}(?:\s+{NAME})*)\s*$"),
    rule("//", rf"(?<![:/\w])//(?P<n>{NAME})/\w"),
    rule("ip=", rf"\bip=[\d.]*:[\d.]*:[\d.]*:[\d.]*:(?P<n>{NAME}):"),
    rule("@", r"(?<![\w.-])[a-z][\w.-]{0,63}@(?P<n>(?!tty|o2ib|tcp|GLIBC)(?=[\w-]{0,63}\d)[a-z][\w-]{0,63})(?![\w.@])"),
    rule(":", r"(?<![\w.-])(?P<n>(?!lib|v\d|x86)(?=[a-z-]{0,60}\d)[a-z][\w-]{0,63}):(?:/[a-z]\w+|29[45]\d\d\b|22\b)"),
    rule("ip-", r"(?<![\w-])(?P<n>ip(?:-\d{1,3}){4})(?![\w-])"),
)
USERS = (
    rule(
        "user acct logname login owner runas auid account",
        r"(?i)(?<![\w-])(?:\w+_)?(?:user(?:name)?|ruser|luser|acct|logname|login|owner|runas|auid_name|account)[\"']?\s?[=:]\s?[\"']?(?P<n>[a-z_][\w.-]*\$?)",
    ),
    rule("id=", r"(?i)\b[a-z]*[ug]id=\d+\((?P<n>[\w.-]+)\)"),
    rule("_user_", r"(?i)\b(?:for|of|by|from|as|invalid) user (?P<n>[a-z_][\w.-]+)(?![\w.-]|/)"),
    rule("_:_", r"(?<![\w.-])(?P<n>[a-z_][\w.-]{0,63}) : (?:TTY|PWD|USER|COMMAND)="),
    rule("-l -u --", r"(?:^|\s)(?:-l|--login|--user|--uid|-u)[ =](?P<n>[a-z_][a-z0-9_.-]{2,31})(?![\w:@/])"),
    rule("/home/ /users/ /scratch/ /data/ /work/", r"/(?:home|Users|users|scratch|data|work)/(?P<n>[a-z_][\w.-]*)"),
    rule(
        "@",
        r"(?<![\w.-])(?P<n>[a-z][\w.-]{0,63})@(?!tty|o2ib|tcp|GLIBC)(?:(?=[\w-]{0,63}\d)[a-z][\w-]{0,63}(?![\w.@])|(?:[\w-]+\.)+[a-z]{2,})",
    ),
)


class Names:
    """What one recording taught: names of hosts, domains and users, and the keywords that were given."""

    def __init__(self, hostname: str, keywords: Iterable[str] = ()) -> None:
        self.hosts: set[str] = set()
        self.domains: set[str] = set()
        self.users: set[str] = set()
        self.learn_host(hostname, sure=True)
        self._keywords = _any(keywords, r"", r"")
        self._hosts: re.Pattern[str] | None = None
        self._users: re.Pattern[str] | None = None

    def learn(self, text: str) -> None:
        """Return the names of hosts and users in the text."""
        for found in URL_HOST.found(text):
            self.learn_host(found[1])
        for found in FULL_NAME.found(text):
            self.learn_host(found[0])
        for pattern in IN_PLACE:
            for found in pattern.found(text):
                for name in found["n"].split():
                    self.learn_host(name)
        for found in SET_IN_TEXT.found(text):
            self.learn_variable(found[1], found[2])
        for pattern in USERS:
            self.users.update(found["n"] for found in pattern.found(text))

    def learn_variable(self, name: str, value: str) -> None:
        """Return the hosts in a variable of this name: TF_CONFIG, MASTER_ADDR, SLURM_JOB_NODELIST and the like."""
        if HOST_VARIABLE.fullmatch(name.upper()):
            for host in hosts_in(value):
                self.learn_host(host)
        if name.upper() in ("USER", "LOGNAME", "SUDO_USER", "SLURM_JOB_USER", "USERNAME"):
            self.users.add(value)

    def learn_host(self, name: str, *, sure: bool = False) -> None:
        """A host's name, short or full. sure: of this host, which may be called by a plain word."""
        short, _, domain = name.partition(".")
        if PUBLIC.fullmatch(name) or not re.search(r"[A-Za-z]", name) or re.match(r"0x|\d+$", name):
            return
        if sure or not NOT_A_NAME.fullmatch(name):
            self.hosts.add(name)
        if domain and re.search(r"[A-Za-z]", domain):
            self.hosts.add(short)
            if "." in domain and not PUBLIC.fullmatch(domain) and not re.fullmatch(r"[a-z]{2,3}\.[a-z]{2}", domain):
                self.domains.add(domain)

    def freeze(self) -> None:
        """After the last text was learnt from."""
        hosts = {name for name in self.hosts if len(name) >= SHORTEST_NAME and not NOT_A_NAME.fullmatch(name)}
        # GPU7 in a message of the driver is not a host named gpu7.
        alternatives = [
            re.escape(name) if re.fullmatch(r"gpu\d+", name) else f"(?i:{re.escape(name)})"
            for name in sorted(hosts, key=lambda name: (-len(name), name))
        ]
        domains = "|".join(map(re.escape, sorted(self.domains, key=lambda name: (-len(name), name))))
        under = [rf"(?i:(?:{LABEL}\.)*(?:{domains}))"] if domains else []
        both = "|".join((*under, *alternatives))
        self._hosts = re.compile(rf"(?<![A-Za-z0-9-])(?:{both})(?![A-Za-z0-9]|-[A-Za-z0-9])") if both else None
        users = {
            name
            for name in self.users
            if len(name) >= SHORTEST_USER and not GENERIC_USER.fullmatch(name) and not NOT_A_NAME.fullmatch(name)
        }
        self._users = _any(users, r"(?<![A-Za-z0-9.])", r"(?![A-Za-z0-9]|\.[a-z])")

    def keywords(self, text: str, names: Pseudonyms) -> str:
        """Keywords, also inside of words."""
        return self._keywords.sub(lambda m: names.named(KEYWORD, m[0], "keyword"), text) if self._keywords else text

    def replaced(self, text: str, names: Pseudonyms) -> str:
        """Hosts and users in free text."""
        text = FULL_NAME.replaced(text, lambda found: _public_or(found[0], names))
        for pattern in IN_PLACE:
            text = pattern.replaced(text, lambda found: part_replaced(found, "n", lambda name: host(name, names)))
        text = URL_HOST.replaced(text, lambda found: part_replaced(found, "n", lambda name: _public_or(name, names)))
        text = SET_IN_TEXT.replaced(text, lambda found: f"{found[1]}={in_variable(found[1], found[2], names)}")
        if self._hosts:
            text = self._hosts.sub(lambda found: host(found[0], names), text)
        for pattern in USERS:
            text = pattern.replaced(text, lambda found: part_replaced(found, "n", lambda name: user(name, names)))
        return self._users.sub(lambda found: user(found[0], names), text) if self._users else text


def _public_or(name: str, names: Pseudonyms) -> str:
    return name if PUBLIC.fullmatch(name) else host(name, names)


def _any(words: Iterable[str], before: str, after: str) -> re.Pattern[str] | None:
    longest = sorted(set(words), key=lambda word: (-len(word), word))
    return re.compile(f"{before}(?:{'|'.join(map(re.escape, longest))}){after}", re.IGNORECASE) if longest else None
