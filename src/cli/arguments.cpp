#include "cli/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>

#include "base/nearest.h"

namespace millrace::cli {

struct ProgramState {
    CLI::App app;
    Context& context;
    std::set<std::string> takers = {};  ///< commands that run what follows "--"
    Action chosen = {};
};

Option Option::required() const { return Option(option_->required()); }
Option Option::show_default() const { return Option(option_->capture_default_str()); }
Option Option::one_of(const std::vector<std::string>& values) const { return Option(option_->check(CLI::IsMember(values))); }
Option Option::excludes(const Option& other) const { return Option(option_->excludes(other.option_)); }
bool Option::is_given() const { return option_->count() > 0; }
std::string Option::name() const { return option_->get_name(); }
Option Option::needs(const Option& other) const { return Option(option_->needs(other.option_)); }

template <class T>
Option Option::between(T least, T most) const {
    return Option(option_->check(CLI::Range(least, most)));
}
template Option Option::between(int, int) const;
template Option Option::between(std::int64_t, std::int64_t) const;
template Option Option::between(std::uint32_t, std::uint32_t) const;
template Option Option::between(double, double) const;

Command Command::command(const std::string& name, const std::string& meaning) const {
    return {app_->add_subcommand(name, meaning), state_};
}

namespace {

template <class T>
struct Held {
    using type = T;
};
template <class T>
struct Held<std::optional<T>> {
    using type = T;
};

/// What the library would pass on as it is: texts that are empty, whole numbers that T cannot hold or that begin with a zero,
/// which it reads as octal, numbers that are not finite. Returns the text to go on with.
template <class T>
std::string checked_word(const std::string& word) {
    const char* const end = word.data() + word.size();
    if constexpr (std::is_same_v<T, std::string>) {
        if (word.empty()) throw CLI::ValidationError("is empty; give a value, or leave the option out");
    } else if constexpr (std::is_integral_v<T>) {
        T number{};
        if (const auto read = std::from_chars(word.data(), end, number); read.ec != std::errc{} || read.ptr != end)
            throw CLI::ValidationError(fmt::format("'{}' is no whole number from {} to {}", word, std::numeric_limits<T>::min(),
                                                   std::numeric_limits<T>::max()));
        return fmt::format("{}", number);
    } else if constexpr (std::is_floating_point_v<T>) {
        T number{};
        if (const auto read = std::from_chars(word.data(), end, number);
            read.ec != std::errc{} || read.ptr != end || !std::isfinite(number))
            throw CLI::ValidationError(fmt::format("'{}' is no finite number", word));
    }
    return word;
}

}  // namespace

template <class T>
Option Command::option(const std::string& names, T& value, const std::string& meaning) const {
    const std::size_t end = std::min(names.find(' '), names.size());
    CLI::Option* option = app_->add_option(names.substr(0, end), value, meaning);
    option->transform(checked_word<typename Held<T>::type>, "", "");
    if (end < names.size()) option->type_name(names.substr(end + 1));
    if (std::is_same_v<T, std::vector<std::string>> && names.front() == '-') option->allow_extra_args(false);
    return Option(option);
}
template Option Command::option(const std::string&, std::string&, const std::string&) const;
template Option Command::option(const std::string&, std::optional<std::string>&, const std::string&) const;
template Option Command::option(const std::string&, std::vector<std::string>&, const std::string&) const;
template Option Command::option(const std::string&, int&, const std::string&) const;
template Option Command::option(const std::string&, std::optional<std::int64_t>&, const std::string&) const;
template Option Command::option(const std::string&, std::uint32_t&, const std::string&) const;
template Option Command::option(const std::string&, std::uint64_t&, const std::string&) const;
template Option Command::option(const std::string&, double&, const std::string&) const;

Option Command::flag(const std::string& names, bool& value, const std::string& meaning) const {
    return Option(app_->add_flag(names, value, meaning));
}

void Command::footer(const std::string& text) const { app_->footer(text); }
void Command::require_command() const { app_->require_subcommand(1); }
void Command::takes_command() const { state_->takers.insert(app_->get_name()); }

void Command::reads_environment(const std::string& prefix) const {
    for (CLI::Option* option : app_->get_options()) {
        if (option == app_->get_help_ptr()) continue;
        std::string variable = prefix + "_" + option->get_lnames().front();
        std::ranges::transform(variable, variable.begin(), [](unsigned char c) { return c == '-' ? '_' : std::toupper(c); });
        option->envname(variable);
    }
}

void Command::action(Action action) const {
    // The library calls back inside out: a command within this one was first.
    app_->callback([state = state_, action = std::move(action)] {
        if (!state->chosen) state->chosen = action;
    });
}

namespace {

/// The type's text is "PORT:INT in [0 - 65535]" or "TEXT:{auto,cpu,cuda}": the word for the value, then what it may be.
void describe_value(const std::string& type, OptionText& out) {
    const std::size_t colon = type.find(':');
    out.value = type.substr(0, colon);
    if (colon == std::string::npos) return;
    const std::string may_be = type.substr(colon + 1);
    if (may_be.starts_with('{'))
        out.choices = CLI::detail::split(may_be.substr(1, may_be.size() - 2), ',');
    else
        out.limits = may_be.substr(std::min(may_be.find('['), may_be.size()));
}

OptionText describe_option(const CLI::Option& option) {
    OptionText out;
    for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
    if (option.get_type_size() != 0) describe_value(option.get_type_name(), out);
    if (out.names.empty() && out.value == "TEXT") out.value = option.get_name();
    out.initial = option.get_default_str();
    out.environment = option.get_envname();
    out.meaning = option.get_description();
    out.is_required = option.get_required();
    out.repeats = option.get_expected_max() == CLI::detail::expected_max_vector_size;
    return out;
}

CommandText describe_app(const CLI::App& app, std::vector<std::string> words, const ProgramState& state) {
    words.push_back(app.get_name());
    CommandText out{words, app.get_description(), app.get_footer(), state.takers.contains(app.get_name()), {}, {}};
    for (const CLI::Option* option : app.get_options()) out.options.push_back(describe_option(*option));
    for (const CLI::App* each : app.get_subcommands({})) out.commands.push_back(describe_app(*each, words, state));
    return out;
}

}  // namespace

CommandText Command::describe() const { return describe_app(*app_, {}, *state_); }

std::vector<const OptionText*> positional_arguments(const CommandText& command) {
    std::vector<const OptionText*> out;
    for (const OptionText& option : command.options)
        if (option.names.empty()) out.push_back(&option);
    return out;
}

namespace {

std::string first_word(int argc, char** argv) { return argc > 1 ? argv[1] : ""; }

/// How many of the arguments are ours: a command that follows "--" goes into the context of those commands that run one.
int own_arguments(const ProgramState& state) {
    auto& [argc, argv, command] = state.context;
    char** const end = argv + argc;
    char** const mark = state.takers.contains(first_word(argc, argv)) ? std::find(argv, end, std::string_view("--")) : end;
    if (mark != end) command.emplace(mark + 1, end);
    return static_cast<int>(mark - argv);
}

/// What was wrong with the arguments and where help is.
std::string usage_text(const CLI::App& app, const std::string& command, const std::string& problem) {
    std::vector<std::string> names;
    for (const CLI::App* each : app.get_subcommands({})) names.push_back(each->get_name());
    if (std::find(names.begin(), names.end(), command) != names.end()) {
        std::string words = command;
        for (const CLI::App* at = app.get_subcommand(command); !at->get_subcommands().empty(); words += " " + at->get_name())
            at = at->get_subcommands().front();
        return fmt::format("{}\nTry: millrace {} --help", problem, words);
    }
    if (command.empty() || command.front() == '-') return problem + "\nTry: millrace --help";
    const std::string nearest = base::nearest_name(command, names);
    return fmt::format("unknown command '{}'; {}", command,
                       nearest.empty() ? "millrace --help lists them" : fmt::format("did you mean {}?", nearest));
}

}  // namespace

Program::Program(const std::string& name, const std::string& meaning, const std::string& version, Context& context)
    : Command(nullptr, nullptr), owned_(new ProgramState{CLI::App{meaning, name}, context}) {
    app_ = &owned_->app;
    state_ = owned_.get();
    app_->set_version_flag("--version", version);
    app_->require_subcommand(1);
}

Program::~Program() = default;

base::Result<int> Program::run() {
    const Context& context = state_->context;
    const std::string command = first_word(context.argc, context.argv);
    try {
        app_->parse(own_arguments(*state_), context.argv);
    } catch (const CLI::Success& done) {
        return app_->exit(done);  // --help, --version
    } catch (const CLI::ParseError& problem) {
        std::string what = problem.what();
        if (dynamic_cast<const CLI::ExtrasError*>(&problem) != nullptr && state_->takers.contains(command))
            what += fmt::format("\nA command to run follows --: millrace {} -- COMMAND", command);
        return base::Error{usage_text(*app_, command, what)};
    }
    return state_->chosen(context);
}

}  // namespace millrace::cli
