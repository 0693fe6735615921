#pragma once
// The command line as the commands see it. The parsing library stays in arguments.cpp: its headers take 20 seconds to compile.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/description.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library chose its name
class App;
class Option;
}  // namespace CLI

namespace millrace::cli {

/// What follows "--": a command to run, whose words are not ours to read. Absent without "--".
using CommandWords = std::optional<std::vector<std::string>>;

/// A handle to an option, flag or positional argument; valid as long as its Program.
class Option {
public:
    explicit Option(CLI::Option* option) : option_(option) {}

    Option required() const;
    /// The word for its value in the help: FILE in "--csv FILE".
    Option placeholder(const std::string& word) const;
    /// The environment variable that gives the value where the option is not given.
    Option environment(const std::string& variable) const;
    /// The help shows what the variable holds now.
    Option show_default() const;
    Option one_of(const std::vector<std::string>& values) const;
    /// Of int, std::int64_t, std::uint32_t and double.
    template <class T>
    Option between(T least, T most) const;
    /// Of a list: each "--set" takes one value, and what follows is another argument.
    Option one_value_each() const;
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
using Action = std::function<base::Result<int>()>;

struct ProgramState;

/// A handle to a command, or to the whole program; valid as long as its Program.
class Command {
public:
    [[nodiscard]] Command command(const std::string& name, const std::string& meaning) const;
    /// "-o,--out" takes a value, "RUN" is a positional argument. `value` must outlive the parsing; T is std::string, int,
    /// std::int64_t, std::uint32_t, std::uint64_t, double, an optional std::string or std::int64_t, or a vector of strings. A
    /// text that is empty, a whole number that T cannot hold and a number that is not finite are refused.
    template <class T>
    Option option(const std::string& names, T& value, const std::string& meaning) const;
    Option flag(const std::string& names, bool& value, const std::string& meaning) const;
    /// Stands at the end of the help.
    void footer(const std::string& text) const;
    /// One of its commands must be named.
    void require_command() const;
    /// It runs a command that follows "--"; `words` must outlive the parsing.
    void takes_command(CommandWords& words) const;
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
    Program(const std::string& name, const std::string& meaning, const std::string& version);
    ~Program();

    /// Reads the arguments and runs the command's action, or prints help or version; gives the exit status. Bad arguments are an
    /// error with exit status 2 that says where help is.
    base::Result<int> run(int argc, char** argv);

private:
    std::unique_ptr<ProgramState> owned_;
};

}  // namespace millrace::cli
