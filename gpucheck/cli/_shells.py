"""What bash, zsh and fish run to complete a command line: click's, where its own scripts fail with our words."""

import os

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)


class _Whole(ShellComplete):
    """Completions of ``--option=value`` with the option: zsh and fish put them in place of the whole word."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return what fits the word."""
        option, sign, _ = incomplete.partition("=")
        before = option + sign if sign and option.startswith("--") else ""
        found = super().get_completions(args, incomplete)
        return [CompletionItem(before + item.value, item.type, item.help) for item in found]


class _Bash(_Whole, BashComplete):
    """click's, for words with a colon or an equals sign, which bash takes for several: ``pcie-width:gpu=1``."""

    # The line goes to gpucheck as it was typed. Of an answer, bash expects what follows the last separator of its own.
    source_template = """%(complete_func)s() {
    local IFS=$'\\n' line=${COMP_LINE:0:COMP_POINT} response completion type value
    local word=${line##*[[:space:]]} separators="" rest before
    [[ $COMP_WORDBREAKS == *:* ]] && separators=:
    [[ $COMP_WORDBREAKS == *=* ]] && separators+==
    rest=$word
    [[ $separators ]] && rest=${word##*[$separators]}
    before=${word:0:${#word}-${#rest}}
    COMPREPLY=()
    response=$(env COMP_WORDS="$line" %(complete_var)s=bash_complete "$1")
    for completion in $response; do
        IFS=',' read -r type value <<<"$completion"
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain)
                COMPREPLY+=("${value#"$before"}")
                [[ $value == *= ]] && compopt -o nospace
                ;;
        esac
    done
    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one that is completed, and that one."""
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)
        return (words[1:], "") if line[-1:].isspace() else (words[1:-1], words[-1])


class _Zsh(_Whole, ZshComplete):
    """click's, which as a file in the fpath completes nothing at the second Tab, and puts a space after ``width=``."""

    source_template = ZshComplete.source_template.replace(
        "$zsh_eval_context[-1] == loadautofunc", "$funcstack[1] == _%(prog_name)s"
    ).replace(
        "compadd -U -V unsorted -a completions",
        "local -a suffix; [[ $completions[1] == *= ]] && suffix=(-S '')\n"
        '        compadd -U "${suffix[@]}" -V unsorted -a completions',
    )


class _Fish(_Whole, FishComplete):
    """click's, which cuts a value at its first comma: ``acs,nvlink``."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


for _shell in (_Bash, _Zsh, _Fish):
    add_completion_class(_shell)
