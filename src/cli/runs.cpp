#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/log.h"
#include "cli/commands.h"
#include "ui/run_folder.h"
#include "ui/run_table.h"

namespace millrace::cli {
namespace {

struct RunsArguments {
    std::string folder = "runs", sort;
    std::vector<std::string> filters;
    bool json = false, reverse = false;
};

base::Result<int> run_runs(const RunsArguments& given) {
    std::vector<ui::RunFilter> filters;
    for (const std::string& text : given.filters) MILLRACE_SET(filters.emplace_back(), ui::parse_run_filter(text));
    MILLRACE_LET(folder, ui::RunFolder::open(given.folder));
    folder.look();
    for (const auto& [name, problem] : folder.problems()) MILLRACE_LOG(warn, "{}", problem);
    if (folder.was_cut()) MILLRACE_LOG(warn, "{} has more folders than are looked through; name one below it", given.folder);
    std::vector<ui::RunSummary> runs;
    for (const auto& [name, run] : folder.runs()) runs.push_back(run.follower.summary());
    // The newest first, unless something else is asked for.
    MILLRACE_TRY(ui::sort_runs(runs, given.sort.empty() ? "when" : given.sort, given.sort.empty() != given.reverse));
    std::erase_if(runs, [&](const ui::RunSummary& run) {
        return !std::ranges::all_of(filters, [&](const ui::RunFilter& filter) { return ui::fits(run, filter); });
    });
    if (given.json)
        say(ui::runs_json(runs));
    else if (!runs.empty())
        say(ui::runs_text(runs));
    else
        say(fmt::format("no runs in {}{}\n", given.folder, filters.empty() ? "" : " fit"));
    return 0;
}

}  // namespace

void add_runs(const Command& program) {
    auto given = std::make_shared<RunsArguments>();
    const Command command = program.command("runs", "list the runs of a folder with their scores");
    command.option("FOLDER", given->folder, "where runs lie, up to five folders deep").show_default();
    command.option("--sort", given->sort, "a column, or a key of the recipe such as optim.lr; the newest run first unless given")
        .placeholder("KEY");
    command.flag("--reverse", given->reverse, "the other way round");
    command.option("--filter", given->filters, "model=TEXT, best>NUMBER, optim.lr<NUMBER; may be given several times")
        .one_value_each()
        .placeholder("FILTER");
    command.flag("--json", given->json, "print a list of objects, with recipes and learning curves");
    command.footer(R"(Examples:
  millrace runs
  millrace runs --sort best --reverse --filter model=NAME --filter state=finished
  millrace runs runs/night --filter "best>0.9" --json

Columns: name, kind, model, data, state, epoch, best, test, time, when, device. A filter with "=" finds a column that holds the text.
"killed" is a run whose process is gone without a word. Links below FOLDER are not followed.)");
    command.action([given] { return run_runs(*given); });
}

}  // namespace millrace::cli
