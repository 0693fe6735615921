#pragma once
// The command line as the commands see it. The parsing library stays in arguments.cpp: its headers take 20 seconds to compile.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library chose its name
class App;
class Option;
}  // namespace CLI

namespace millrace::cli {

// What --help prints, as a table: manual pages and completion are made from it.

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

/// How the program was called.
struct Context {
    int argc = 0;
    char** argv = nullptr;
    /// What follows "--" where a command takes that: a command to run, whose words are not ours to read. Absent without "--".
    std::optional<std::vector<std::string>> command = {};
};

/// A handle to an option, flag or positional argument; valid as long as its Program.
class Option {
public:
    explicit Option(CLI::Option* option) : option_(option) {}

    Option required() const;
    /// The help shows what the variable holds now.
    Option show_default() const;
    Option one_of(const std::vector<std::string>& values) const;
    /// Of int, std::int64_t, std::uint32_t and double.
    template <class T>
    Option between(T least, T most) const;
    /// An error when it is given without the other.
    Option needs(const Option& other) const;
    /// An error when both are given.
    Option excludes(const Option& other) const;

    [[nodiscard]] bool is_given() const;
    [[nodiscard]] std::string name() const;

private:
    CLI::Option* option_;
};

/// What a command does once its arguments are read: the exit status, or an error to report.
using Action = std::function<base::Result<int>(const Context& context)>;

struct ProgramState;

/// A handle to a command, or to the whole program; valid as long as its Program.
class Command {
public:
    [[nodiscard]] Command command(const std::string& name, const std::string& meaning) const;
    /// The same with its arguments, which live as long as the program. run(arguments) or run(arguments, context) gets them once
    /// they are read.
    template <class Arguments, class Run>
    [[nodiscard]] std::pair<Command, Arguments&> command(const std::string& name, const std::string& meaning, Run run) const {
        auto given = std::make_shared<Arguments>();
        const Command made = command(name, meaning);
        made.action([given, run](const Context& context) -> base::Result<int> {
            if constexpr (std::is_invocable_v<Run, Arguments&, const Context&>)
                return run(*given, context);
            else
                return run(*given);
        });
        return {made, *given};
    }
    /// "-o,--out RUN" takes a value, which the help calls RUN, "RUN" is a positional argument. A list's option takes one value
    /// each time it is given, a positional list all that follow. `value` must outlive the parsing; T is std::string, int,
    /// std::int64_t, std::uint32_t, std::uint64_t, double, an optional std::string or std::int64_t, or a vector of strings. A
    /// text that is empty, a whole number that T cannot hold and a number that is not finite are refused.
    template <class T>
    Option option(const std::string& names, T& value, const std::string& meaning) const;
    Option flag(const std::string& names, bool& value, const std::string& meaning) const;
    /// Stands at the end of the help.
    void footer(const std::string& text) const;
    /// One of its commands must be named.
    void require_command() const;
    /// It runs a command that follows "--".
    void takes_command() const;
    /// Each of its options so far, "--some-option", is read from the variable PREFIX_SOME_OPTION where it is not given.
    void reads_environment(const std::string& prefix) const;
    void action(Action action) const;
    /// It and the commands within it, as the help tells them.
    [[nodiscard]] CommandText describe() const;

protected:
    Command(CLI::App* app, ProgramState* state) : app_(app), state_(state) {}
    CLI::App* app_;
    ProgramState* state_;
};

class Program : public Command {
public:
    /// `context` outlives the program, which moves a command that follows "--" to where it belongs.
    Program(const std::string& name, const std::string& meaning, const std::string& version, Context& context);
    ~Program();

    /// Reads the arguments and runs the command's action, or prints help or version; gives the exit status. Bad arguments are an
    /// error with exit status 2 that says where help is.
    base::Result<int> run();

private:
    std::unique_ptr<ProgramState> owned_;
};

}  // namespace millrace::cli
