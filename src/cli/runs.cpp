// A folder of runs, as a table and in a browser.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>

#include "base/log.h"
#include "base/signal_queue.h"
#include "cli/commands.h"
#include "ui/run_folder.h"
#include "ui/run_table.h"
#include "ui/server.h"

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

constexpr int kUsualPort = 8642;

struct UiArguments {
    std::string folder = "runs";
    std::optional<std::string> host;
    std::optional<std::int64_t> port;
};

base::Result<int> run_ui(const UiArguments& given) {
    base::SignalQueue signals(std::array{SIGINT, SIGTERM, SIGHUP});
    if (given.host && given.host->empty())
        return base::Error{"names no address; leave it out for this machine alone", "--host \"\""};
    if (given.port && (*given.port < 0 || *given.port > 65535))
        return base::Error{"is no port: 0 to 65535", fmt::format("--port {}", *given.port)};
    ui::ServerOptions options{given.folder, given.host.value_or(""), static_cast<int>(given.port.value_or(kUsualPort))};
    auto server = ui::Server::start(options);
    if (!server.ok() && !given.port) {  // the usual one is taken
        options.port = 0;
        server = ui::Server::start(options);
    }
    if (!server.ok()) return server.error();
    say(fmt::format("{}\n", (*server)->address()));
    std::fflush(stdout);
    const auto signal = signals.next(std::nullopt);
    return signal ? 128 + signal->number : 0;
}

}  // namespace

void add_runs(const Command& program) {
    auto [command, given] = program.command<RunsArguments>("runs", "list the runs of a folder with their scores", run_runs);
    command.option("FOLDER", given.folder, "where runs lie, up to five folders deep").show_default();
    command.option("--sort KEY", given.sort,
                   "a column, or a key of the recipe such as optim.lr; the newest run first unless given");
    command.flag("--reverse", given.reverse, "the other way round");
    command.option("--filter FILTER", given.filters, "model=TEXT, best>NUMBER, optim.lr<NUMBER; may be given several times");
    command.flag("--json", given.json, "print a list of objects, with recipes and learning curves");
    command.footer(R"(Examples:
  millrace runs
  millrace runs --sort best --reverse --filter model=NAME --filter state=finished
  millrace runs runs/night --filter "best>0.9" --json

Columns: name, kind, model, data, state, epoch, best, test, time, when, device. A filter with "=" finds a column that holds the text.
"killed" is a run whose process is gone without a word. Links below FOLDER are not followed.)");
}

void add_ui(const Command& program) {
    auto [command, given] = program.command<UiArguments>("ui", "show the runs of a folder in a browser, live", run_ui);
    command.option("FOLDER", given.folder, "where runs, studies and reports lie").show_default();
    command.option("--host ADDRESS", given.host, "let other machines ask, too, at this numeric address; a token is printed then");
    command.option("--port PORT", given.port, "8642 unless given, or any that is free; 0: any");
    command.footer(R"(Examples:
  millrace ui
  millrace ui runs/night --port 9000
  ssh -L 8642:127.0.0.1:8642 machine millrace ui       a machine far away, with nothing open to the network

It prints its address and serves until Ctrl-C. It reads the files that runs write anyway; nothing is sent anywhere.)");
}

}  // namespace millrace::cli
