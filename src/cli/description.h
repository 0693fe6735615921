#pragma once
// The command line as a table: what --help prints, and what manual pages and completion are made from.

#include <string>
#include <vector>

namespace millrace::cli {

struct OptionText {
    std::vector<std::string> names;    ///< "-o" and "--out"; none of a positional argument
    std::string value;                 ///< the word for its value, such as FILE; empty: it takes none
    std::vector<std::string> choices;  ///< the values it takes; empty: others, too
    std::string limits;                ///< of a number, "[1 - 100]"; empty: none
    std::string initial;               ///< what it is unless given; empty: nothing, or the meaning says it
    std::string environment;           ///< the variable that gives it, too; empty: none
    std::string meaning;
    bool is_required = false, repeats = false;
};

struct CommandText {
    std::vector<std::string> words;  ///< "millrace", "data", "make"
    std::string meaning, footer;
    bool takes_command = false;  ///< behind "--"
    std::vector<OptionText> options;
    std::vector<CommandText> commands;
};

/// What stands beside the options that begin with a hyphen: in the order in which they are given.
std::vector<const OptionText*> positional_arguments(const CommandText& command);

}  // namespace millrace::cli
