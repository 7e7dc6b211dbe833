# SPDX-License-Identifier: Apache-2.0
# Texts that say which lines of a source become others (plants/, ../bench/rules); sourced by who builds them.
#
# plant FILE FOLDER: reads it. $name is its own, $file the one that it changes, named from FOLDER, $text what that becomes; $breaks,
# $within and $from (1) are what it says besides. A sentence and false when it does not fit the source any more.
plant() {
    local line part='' old='' new='' without
    name=$(basename "${1%.*}") file='' text='' breaks='' within='' from=1
    while IFS= read -r line; do
        case $line in
        '<<<<') part=old old='' new='' ;;
        '====') part=new ;;
        '>>>>')
            part=''
            [ -n "$text" ] || { echo "$name: the file comes first"; return 1; }
            without=${text//"$old"/}
            if [ $((${#text} - ${#without})) != ${#old} ]; then
                echo "$name: what it changes is not in $file exactly once: the plant must follow the source"
                return 1
            fi
            text=${text/"$old"/"$new"} ;;
        *)
            case $part in
            old) old+=$line$'\n' ;;
            new) new+=$line$'\n' ;;
            *)
                case $line in
                'file '*) file=${line#file } text=$(cat "$2/$file")$'\n' ;;
                'breaks '*) breaks=${line#breaks } ;;
                'within '*) within=${line#within } ;;
                'from '*) from=${line#from } ;;
                esac ;;
            esac ;;
        esac
    done <"$1"
    [ -n "$file" ] || { echo "$name: it says no file"; return 1; }
}
