"""Words that identify no person and no site, and are kept."""

import re

# Accounts that images and packages create.
GENERIC_USER = re.compile(
    r"(?i)root|ubuntu|debian|centos|rocky|almalinux|fedora|cloud-user|ec2-user|azureuser|opc|admin|administrator|user|nobody"
    r"|nvidia|vagrant|runner|jovyan|docker|daemon|www-data|slurm|munge|nvidia-persistenced|systemd|messagebus|sshd|dbus"
    r"|rpc|chrony|syslog|kernel|none|unknown|null|shared|public|default|guest|test|\d+"
)
# Of the file hierarchy standard: what is below them comes from packages. Not /home, /root, /srv, /mnt, /tmp.
SYSTEM_FOLDER = re.compile(
    r"bin|boot|dev|devices|etc|lib|lib32|lib64|libx32|lost\+found|opt|proc|run|sbin|snap|sys|sysroot|usr|var"
)
HARMLESS_FOLDER = re.compile(
    r"(?i)root|home|users?|data\d{0,3}|scratch\d{0,3}|work|workspace|tmp|mnt|media|srv|export|nfs\d{0,3}|net|lustre|gpfs|beegfs"
    r"|weka|ceph|fsx|efs|projects?|shared?|storage|cluster|groups?|u|datasets?|models?|raid\d?|nvme\d{0,2}|ssd|hdd|disk\d{0,3}"
    r"|lib(?:32|64)?|s?bin|include|src|local|etc|opt|usr|var|env|venv|envs|\.venv|\.cache|\.local|\.config|\.ssh|\.nccl\.conf"
    r"|(?:mini|ana)?conda\d?|miniforge\d?|mambaforge|(?:site|dist)-packages|python[\d.]*|cuda(?:-[\d.]+)?|targets|x86_64-linux"
    r"|x86_64-linux-gnu|aarch64-linux-gnu|stubs|compat|nvidia(?:-[a-z]+)?|nccl|cudnn|torch|tensorflow|checkpoints?|logs?"
    r"|extras|cupti|hpcx|ucx|openmpi|mpi|intel|mkl|gcc|code|train\.py|main\.py|slurm|jobs?|images?|containers?"
    r"|@|ostree|[\w.@:-]+\.(?:slice|scope|service)|vmlinuz[\w.+-]*|init(?:rd|ramfs)[\w.+-]*|[\w+-]+\.so(?:\.\d+)*|\d+|"
)
# Names that never identify a host in a text: they are words of the hardware or of the frameworks.
NOT_A_NAME = re.compile(
    r"(?i)localhost.*|ip6-\w+|local|master|worker|chief|evaluator|ps|host|hosts|server|client|nodes?|rank\d*|none|null|auto|true|false"
    r"|nvidia\w*|nvlink|nvswitch|nouveau|nccl|cuda|cudnn|gpus?|cpus?\d*|numa\w*|pcie?\w*|driver|kernel|memory|switch|link|open|error"
    r"|failed|fatal|root|device|bridge|port|reset|system|linux|module|modules|proprietary|version|loaded|loading|power|fabric|bus|slot"
    r"|ubuntu|debian|centos|rocky|rhel|fedora|almalinux|amd64|x86_64|aarch64|xid|nvrm|dmar|iommu|ecc|python\d?|torch|tensorflow|train"
    r"|(?:mlx\d|eth|en[psox]|ib|bond|wl|docker|veth|br|tty|sd|nvme|eno|ens|lo)\d*(?:[_spf]\d\w*)*|data|test|default|info|warning|debug"
    r"|unknown|enabled|disabled|active|running|stopped|gpu-\w|machine|container|virtual|channel|service|process|completed|user|home"
)
# Public sites of manufacturers and distributions: addresses in /etc/os-release and in messages of drivers.
PUBLIC = re.compile(
    r"(?i)(?:(?:www|docs?|developer|download|support|access|bugs?|bugzilla|issues|help|lore|git|gitlab|forums?|wiki|lists|vger|security|api"
    r"|archive|packages|registry-1|index|files|cdn|dl|mirrors?|deb|ppa|us\.download|nvcr)\.)?"
    r"(?:kernel|debian|ubuntu|redhat|centos|rockylinux|almalinux|fedoraproject|nvidia|intel|amd|launchpad|github|gitlab|freedesktop"
    r"|docker|pytorch|tensorflow|opensuse|suse|oracle|canonical|archlinux)\.(?:org|com|net|io)|nvcr\.io|ghcr\.io|quay\.io"
)
