#!/bin/sh
# GUEST: runs as the Worker below tools/. A project with a real autoconf `configure` is built, installed and cleaned
# with the safeguards on. configure removes some 70 files; one refusal would fail it. Ends with "ok: ...".
set -eu

fail() {
    printf 'build_with_configure: %s\n' "$1" >&2
    exit 1
}

need_autoconf() {
    command -v autoconf >/dev/null || sudo -n apt-get install -y -q --no-install-recommends autoconf >/dev/null \
        || fail "autoconf cannot be installed; is the package mirror in reach (\`sudo apt-get update\`)?"
}

write_project() {
    cat >configure.ac <<'AC'
AC_INIT([greeter], [1.0])
AC_PROG_CC
AC_CHECK_HEADERS([unistd.h no_such_header.h])
AC_CHECK_FUNCS([strdup no_such_function])
AC_CONFIG_HEADERS([config.h])
AC_CONFIG_FILES([Makefile])
AC_OUTPUT
AC
    cat >config.h.in <<'H'
#undef HAVE_UNISTD_H
#undef HAVE_STRDUP
H
    cat >main.c <<'C'
#include <stdio.h>
#include "config.h"
#ifndef HAVE_STRDUP
#error configure lost its results
#endif
int main(void) { puts("built with the safeguards on"); return 0; }
C
    printf '%s\n' 'prefix = @prefix@' \
        'greeter: main.o ; $(CC) -o $@ main.o' \
        'main.o: main.c config.h ; @CC@ -I. -c main.c' \
        'install: greeter ; mkdir -p $(prefix)/bin && rm -f $(prefix)/bin/greeter && cp greeter $(prefix)/bin/' \
        'clean: ; rm -f greeter *.o' >Makefile.in
}

main() {
    sandbox=${1:-/sandbox}
    project=$sandbox/workspace/tools/greeter-$$
    need_autoconf
    mkdir -p "$project/src" && cd "$project/src"
    write_project
    autoconf || fail "autoconf fails below tools/"
    ./configure --prefix="$project/installed" >configure.out 2>&1 \
        || fail "configure fails: $(tail -n 3 configure.out)"
    grep -q 'refused' configure.out config.log && fail "configure was refused a removal; see $project/src/config.log"
    make install >make.out 2>&1 || fail "make install fails: $(tail -n 3 make.out)"
    make install >make.out 2>&1 || fail "a second make install fails: $(tail -n 3 make.out)"
    [ "$("$project/installed/bin/greeter")" = "built with the safeguards on" ] || fail "the program does not run"
    make clean >make.out 2>&1 || fail "make clean fails: $(tail -n 3 make.out)"
    [ ! -e greeter ] && [ ! -e main.o ] || fail "make clean left the objects where they were"
    find "$sandbox/trash" -name main.o 2>/dev/null | grep -q . || fail "main.o did not reach the trash"
    echo "ok: configure, make, install and clean passed in $project"
}

main "$@" </dev/null
