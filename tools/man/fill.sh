#!/bin/bash
# Fills a manual page in from its program's own help, so that the two can't say different
# things:   fill.sh PAGE.rst FOLDER-OF-PROGRAMS
# A line @COMMANDS@ becomes the commands of bough, @HELP@ the text of --help.
set -euo pipefail
page=$1
program=$2/$(basename "${page%%.*}")

commands() {
	"$program" help | awk '
		/^Every command takes/ { done = 1 } # and reads on: `help` must not meet a closed pipe
		done { next }
		/^[A-Z].*[a-z]$/ && !/^usage/ { print "G " $0 }
		/^  [a-z]/ && $1 != last { print "C " $1; last = $1 }
	' | while read -r kind rest; do
		if [ "$kind" = G ]; then
			[[ $rest != *workspaces:* ]] || continue
			printf '\n%s\n%s\n' "$rest" "${rest//?/-}"
			continue
		fi
		"$program" help "$rest" | awk '
			function quoted(s) { gsub(/`/, "``", s); return s }
			function option(name, text) {
				printf "    ``%s``\n", name
				if (text != "")
					printf "        %s\n", text
			}
			/^usage: / {
				sub(/^usage: /, "")
				printf "\n``%s``\n", $0
				part = "about"
				next
			}
			/^Options$/ { part = "options"; print ""; next }
			/^As for every command$/ { part = "common"; next }
			/^Examples$/ { part = "examples"; print "\n    ::\n"; next }
			part == "about" { printf "%s%s\n", $0 == "" ? "" : "    ", quoted($0) }
			part == "options" && /^(  -., |      )--/ {
				sub(/^ +/, "")
				if (match($0, /  +/))
					option(substr($0, 1, RSTART - 1), quoted(substr($0, RSTART + RLENGTH)))
				else
					option($0, "")
				next
			}
			part == "options" && /^ / { sub(/^ +/, ""); printf "        %s\n", quoted($0) }
			part == "examples" && /^  \$/ { sub(/^  \$ /, ""); printf "        %s\n", $0 }
			part == "examples" && $0 == "" { print "" }
		'
	done
}

while IFS= read -r line; do
	case $line in
	@COMMANDS@) commands ;;
	@HELP@)
		printf '::\n\n'
		"$program" --help | sed 's/^/    /'
		;;
	*) printf '%s\n' "$line" ;;
	esac
done <"$page"
