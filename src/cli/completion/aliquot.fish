# SPDX-License-Identifier: Apache-2.0
# Completion of aliquot for fish, from what `aliquot ... --help=list` prints.

function __aliquot_complete
    set -l tokens (commandline -opc)
    set -l path $tokens[1]
    set -l list ($path --help=list 2>/dev/null)
    set -l value 0
    for at in (seq 2 (count $tokens))
        set -l word $tokens[$at]
        if test $word = --
            __fish_complete_subcommand --fcs-skip=$at
            return
        end
        if test $value = 1
            set value 0
            continue
        end
        for row in $list
            set -l fields (string split \t -- $row)
            test "$fields[1]" = option -a -n "$fields[4]"; and contains -- $word "--$fields[2]" "-$fields[3]"; and set value 1
        end
        if string match -q -- (printf "command\t%s\t*" $word) $list
            set -a path $word
            set list ($path --help=list 2>/dev/null)
        end
    end
    # The value of an option: a file, or nothing to offer.
    for row in $list
        set -l fields (string split \t -- $row)
        if test "$fields[1]" = option -a -n "$fields[4]"; and contains -- "$tokens[-1]" "--$fields[2]" "-$fields[3]"
            string match -q -r 'FILE|DIR' -- $fields[4]; and __fish_complete_path (commandline -ct)
            return
        end
    end
    set -l kinds command word
    string match -q -- '-*' (commandline -ct); and set kinds option
    for row in $list
        set -l fields (string split \t -- $row)
        contains -- $fields[1] $kinds; or continue
        test $fields[1] = option; and set fields[2] "--$fields[2]"
        printf '%s\t%s\n' $fields[2] "$fields[5]"
    end
end

complete -c aliquot -f -a '(__aliquot_complete)'
