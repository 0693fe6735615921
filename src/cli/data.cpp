#include <fmt/format.h>

#include "base/log.h"
#include "cli/commands.h"
#include "data/command.h"
#include "data/makers.h"
#include "models/registry.h"

namespace millrace::cli {
namespace {

struct MakeArguments {
    std::string kind, out;
    std::uint64_t seed = data::kMakerSeed;
    std::vector<data::Maker> makers = data::makers();
    std::vector<std::pair<Option, std::string>> options;  ///< those that belong to one kind alone
};

/// Adds an option of whatever type; `described` must outlive the parsing and receives the value.
Option add_option(const Command& command, data::CommandOption& described, const std::string& meaning) {
    const auto add = [&]<class T>(T& value) {
        if constexpr (std::is_same_v<T, bool>) {
            return command.flag(described.name, value, meaning);
        } else {
            const std::string value_name = described.placeholder.empty() ? "" : " " + described.placeholder;
            const Option option = command.option(described.name + value_name, value, meaning);
            if constexpr (!std::is_same_v<T, std::string>) return option.show_default();
            return described.as<std::string>().empty() ? option : option.show_default();
        }
    };
    const Option option = std::visit(add, described.value);
    return described.required ? option.required() : option;
}

/// Runs with a line of progress below the log where stderr is a terminal, and prints what came of it.
base::Result<int> run_with_progress(const std::function<base::Result<std::string>(const data::CommandProgress& progress)>& run) {
    base::LiveLines line(base::stderr_is_terminal());
    const auto made = run([&](std::uint64_t done, std::uint64_t total) { line.draw(fmt::format("{} of {} done", done, total)); });
    line.draw({});
    if (!made.ok()) return made.error();
    say(*made + "\n");
    return 0;
}

base::Result<int> run_make(const MakeArguments& given) {
    for (const auto& [option, kinds] : given.options)
        if (option.is_given() && given.kind != kinds)
            return base::Error{fmt::format("{} belongs to {}, not to {}", option.name(), kinds, given.kind)};
    for (const data::Maker& maker : given.makers)
        if (maker.name == given.kind)
            return run_with_progress([&](const data::CommandProgress& progress) {
                return maker.make(given.out, given.seed, maker.options, progress);
            });
    return 0;
}

void add_make(const Command& data) {
    auto [make, given] =
        data.command<MakeArguments>("make", "write a built-in data set in the format real data comes in", run_make);
    std::string meaning, examples = "Examples:";
    std::vector<std::string> names;
    for (const data::Maker& maker : given.makers) {
        meaning += fmt::format("{}{}: {}", meaning.empty() ? "" : "; ", maker.name, maker.meaning);
        examples += fmt::format("\n  millrace data make {} --out data/{}", maker.name, maker.name);
        names.push_back(maker.name);
    }
    make.option("KIND", given.kind, meaning).required().one_of(names);
    make.option("--out PATH", given.out, "folder to write").required();
    make.option("--seed", given.seed, "another seed draws another set").show_default();
    for (data::Maker& maker : given.makers)
        for (data::CommandOption& option : maker.options)
            given.options.emplace_back(add_option(make, option, fmt::format("{}: {}", maker.name, option.meaning)), maker.name);
    make.footer(examples);
}

}  // namespace

void add_data(const Command& program) {
    const Command data = program.command("data", "data sets");
    data.require_command();
    add_make(data);
    std::vector<data::DataCommand> commands = models::data_commands();
    commands.insert(commands.begin(), data::show_command());
    for (const data::DataCommand& supplied : commands) {
        auto [command,
              given] = data.command<data::DataCommand>(supplied.name, supplied.meaning, [](const data::DataCommand& chosen) {
            return run_with_progress([&](const data::CommandProgress& progress) { return chosen.run(chosen.options, progress); });
        });
        given = supplied;
        for (data::CommandOption& option : given.options) add_option(command, option, option.meaning);
        if (!given.examples.empty()) command.footer(given.examples);
    }
}

}  // namespace millrace::cli
