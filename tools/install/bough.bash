# bash completion for bough(1). `bough __complete` knows the commands, options and, when
# the service runs, the names of workspaces and snapshots; a Tab never starts it.
_bough() {
	local cur line words files='' IFS=$'\n'
	cur=${COMP_WORDS[COMP_CWORD]}
	words=("${COMP_WORDS[@]:0:COMP_CWORD}")
	[ -z "$cur" ] || words+=("$cur") # no word yet: anything may stand there
	COMPREPLY=()
	while IFS= read -r line; do
		case $line in
		$'\tf') files='file' ;; # the shell knows files better
		$'\td') files=folder ;;
		*) COMPREPLY+=("$line") ;;
		esac
	done < <("${COMP_WORDS[0]}" __complete -- "$COMP_CWORD" "${words[@]}" 2>/dev/null)
	case $files in
	file) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$cur") ;;
	folder) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$cur") ;;
	esac
	[ -z "$files" ] || compopt -o filenames 2>/dev/null
}
complete -F _bough bough
