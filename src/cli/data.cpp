#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "base/log.h"
#include "cli/commands.h"
#include "data/makers.h"

namespace millrace::cli {
namespace {

struct MakeArguments {
    std::string kind, out;
    std::uint64_t seed = data::kMakerSeed;
    std::vector<data::Maker> makers = data::makers();
    std::vector<std::pair<Option, std::string>> options;  ///< those that belong to one kind alone
};

base::Result<int> run_make(const MakeArguments& given) {
    for (const auto& [option, kind] : given.options)
        if (option.is_given() && given.kind != kind)
            return base::Error{fmt::format("{} belongs to {}, not to {}", option.name(), kind, given.kind)};
    const bool live = base::stderr_is_terminal();
    data::MakerProgress progress;
    if (live)
        progress = [](std::uint64_t done, std::uint64_t total) {
            base::write_to_terminal(fmt::format("\r\x1b[K{} of {} done", done, total));
        };
    for (const data::Maker& maker : given.makers) {
        if (maker.name != given.kind) continue;
        const auto made = maker.make(given.out, given.seed, maker.options, progress);
        if (live) base::write_to_terminal("\r\x1b[K");
        if (!made.ok()) return made.error();
        say(*made + "\n");
    }
    return 0;
}

}  // namespace

void add_data(const Command& program) {
    auto given = std::make_shared<MakeArguments>();
    const Command command = program.command("data", "data sets");
    command.require_command();
    const Command make = command.command("make", "write a built-in data set in the format real data comes in");
    std::string meaning, examples = "Examples:";
    std::vector<std::string> names;
    for (const data::Maker& maker : given->makers) {
        meaning += fmt::format("{}{}: {}", meaning.empty() ? "" : "; ", maker.name, maker.meaning);
        examples += fmt::format("\n  millrace data make {} --out data/{}", maker.name, maker.name);
        names.push_back(maker.name);
    }
    make.option("KIND", given->kind, meaning).required().one_of(names);
    make.option("--out", given->out, "folder to write").required().placeholder("PATH");
    make.option("--seed", given->seed, "another seed draws another set").show_default();
    for (data::Maker& maker : given->makers)
        for (data::MakerOption& option : maker.options)
            given->options.emplace_back(
                make.option(option.name, option.value, fmt::format("{}: {}", maker.name, option.meaning)).show_default(),
                maker.name);
    make.footer(examples);
    make.action([given] { return run_make(*given); });
}

}  // namespace millrace::cli
