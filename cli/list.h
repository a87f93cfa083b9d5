/* list.h: every command, in the order of `heed --help`. COMMAND(show) expands to a declaration of command_show and to its place in commands[] (main.c). */
COMMAND(tokenize)
COMMAND(inspect)
COMMAND(attend)
COMMAND(bench_attention)
COMMAND(info)
COMMAND(help)
COMMAND(completion)
