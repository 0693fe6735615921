#include "cli/commands.h"

int main(int argc, char** argv) { return millrace::cli::run(argc, argv); }
