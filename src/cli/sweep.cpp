#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>

#include "base/log.h"
#include "base/units.h"
#include "cli/run_arguments.h"
#include "comm/group.h"
#include "sweep/report.h"
#include "sweep/slurm.h"
#include "train/run_signals.h"
#include "train/trainer.h"

namespace millrace::cli {
namespace {

constexpr int kNoWinner = 1;  // no trial is complete and keeps all constraints

struct SweepArguments : RunArguments {
    std::string study, lanes = "auto", device, journal, join;
    std::optional<std::string> time, grace;
    std::optional<std::int64_t> trials;
    std::vector<std::string> settings;
};

base::Result<int> parse_lanes(const std::string& text) {
    constexpr int kMost = 1024;
    if (text == "auto") return 0;
    const bool is_number = !text.empty() && text.size() <= 4 && text.find_first_not_of("0123456789") == std::string::npos;
    const int lanes = is_number ? std::stoi(text) : 0;
    if (lanes < 1 || lanes > kMost)
        return base::Error{fmt::format("must be auto or a whole number from 1 to {}", kMost), fmt::format("--lanes {}", text)};
    return lanes;
}

/// The argument with *** for the password of a database's URL.
std::string without_password(std::string word) {
    const std::size_t begin = word.find("://");
    if (begin == std::string::npos) return word;
    const std::size_t host = word.find_first_of("/?", begin + 3), at = word.rfind('@', host);
    if (const std::size_t colon = word.find(':', begin + 3); at != std::string::npos && colon < at && at > begin)
        word.replace(colon + 1, at - colon - 1, "***");
    constexpr std::string_view kKey = "password=";
    if (const std::size_t key = word.find(kKey, begin); key != std::string::npos)
        word.replace(key + kKey.size(), std::min(word.find('&', key), word.size()) - key - kKey.size(), "***");
    return word;
}

base::Result<sweep::RunRequest> request_of(const SweepArguments& given, const Context& context) {
    sweep::RunRequest request;
    for (int i = 0; i < context.argc; ++i) request.command.push_back(without_password(context.argv[i]));
    MILLRACE_SET(request.lanes, parse_lanes(given.lanes));
    if (given.time) {
        const auto time = base::parse_duration(*given.time);
        if (!time.ok()) return base::Error{time.error().message, fmt::format("--time {}", *given.time)};
        request.time = *time;
    }
    if (given.grace) {
        const auto grace = base::parse_duration(*given.grace);
        if (!grace.ok() || *grace < std::chrono::seconds{1} || *grace > std::chrono::hours{24})
            return base::Error{"must be a time from 1s to 24h", fmt::format("--grace {}", *given.grace)};
        request.grace = std::chrono::duration_cast<std::chrono::milliseconds>(*grace);
    }
    MILLRACE_SET(request.out, given.directory(given.study));
    request.number_if_taken = !given.out;
    request.resume = given.resume;
    request.journal = given.journal;
    request.database = given.join;
    return request;
}

base::Result<int> submit(const SweepArguments& given, const Context& context) {
    if (given.join.empty() || given.out || given.resume)
        return base::Error{
            "needs --join URL, by which the workers share the study, and neither --out nor --resume: each has a run "
            "directory of its own",
            "--slurm"};
    if (without_password(given.join) != given.join)
        return base::Error{"would write the password into a script; PGPASSWORD or ~/.pgpass would not", "--join"};
    MILLRACE_LET(options, sweep::parse_slurm_options(*given.slurm));
    return submit_script(sweep::slurm_script(options, words_without(context, {"--slurm"})),
                         train::default_run_directory(given.study).string() + ".sbatch");
}

base::Result<int> run_sweep(const SweepArguments& given, const Context& context) {
    std::signal(SIGPIPE, SIG_IGN);  // a reader of our output may leave; the sweep goes on
    // First of all: every thread inherits that they are blocked.
    const train::RunSignals signals(train::RunSignals::OnUser1::stop);
    // Tasks of srun that cannot meet still share a study on a server.
    auto group = std::make_unique<comm::Group>();
    if (comm::launch() != comm::Launch::kApart || given.join.empty()) MILLRACE_SET(group, comm::open_group());
    MILLRACE_TRY(comm::share_host(*group));
    MILLRACE_TRY(train::share_memory(*group));
    if (group->rank() > 0) base::set_log_source(fmt::format("rank {}: ", group->rank()));
    train::ConsoleOptions options;
    sweep::StudyFile study;
    sweep::RunRequest request;
    const auto prepare = [&]() -> base::Status {
        MILLRACE_SET(options, given.console());
        std::vector<std::string> flags = given.settings;
        if (!given.device.empty()) flags.push_back("device=" + given.device);
        MILLRACE_SET(study, sweep::load_study(given.study, flags));
        if (given.trials) study.trials = *given.trials;
        MILLRACE_SET(request, request_of(given, context));
        return base::ok();
    };
    MILLRACE_TRY(group->agree(prepare()));
    if (given.slurm) return submit(given, context);
    const bool is_first = group->rank() == 0;
    if (!is_first) base::set_log_level(base::LogLevel::warn);
    options.quiet = options.quiet || !is_first;
    request.stop = &signals.stop();
    request.group = group.get();

    sweep::Console console(options);
    request.on_epoch = [&](const sweep::Progress& progress) { console.show(progress); };
    const auto factory = sweep::training_lanes();
    MILLRACE_LET(report, sweep::run_study(study, request, *factory));
    console.end();
    if (is_first) say((given.json ? sweep::report_json(study, report) : sweep::report_text(study, report)) + "\n");
    if (report.was_stopped) return report.signal == SIGUSR1 ? sweep::kRunAgainStatus : 128 + report.signal;
    return is_first && report.best_recipe.empty() && study.finalists > 0 ? kNoWinner : 0;
}

}  // namespace

void add_sweep(const Command& program) {
    auto [command, given] =
        program.command<SweepArguments>("sweep", "search hyper-parameters, many trials side by side on one device", run_sweep);
    command.option("STUDY", given.study, "study in TOML: a recipe, what is searched, and how (docs/sweep.md)").required();
    command.option("--set KEY=VALUE", given.settings, "key=value: fixes a recipe's key for all trials; may be repeated");
    command.option("--trials N", given.trials, "configurations to try, instead of the study's number")
        .between<std::int64_t>(1, 1000000);
    command.option("--time TIME", given.time, "end the search after this time (10m, 2h); finalists are trained after it");
    command.option("--lanes auto|K", given.lanes, "trials side by side: a number, or auto for as many as pay");
    command.option("--device", given.device, "auto, cpu or cuda").one_of({"auto", "cpu", "cuda"});
    command.option("--out DIR", given.out, "run directory (runs/<study> unless given)");
    command.flag("--resume", given.resume, "go on with the study in --out");
    command.option("--join URL", given.join, "work on the study in this database, postgresql://..., with other workers");
    command.option("--grace TIME", given.grace,
                   "take over trials of workers silent for this time, 60s unless given; alike for all");
    command.option(
        "--slurm OPTIONS", given.slurm,
        "submit workers to Slurm: \"partition=gpu gres=gpu:1 array=0-7%4 time=1:00:00\"; prints the script without sbatch");
    command.option("--journal FILE", given.journal, "write the study as a journal of Optuna, too");
    given.add_console(command);
    command.footer(R"(Examples:
  millrace sweep recipes/study-NAME.toml
  millrace sweep recipes/study-NAME.toml --trials 1000 --time 30m --out runs/night
  millrace sweep recipes/study-NAME.toml --out runs/night --resume
  millrace sweep recipes/study-NAME.toml --join postgresql://host/database
  mpirun -n 8 millrace sweep recipes/study-NAME.toml

Ctrl-C (SIGTERM) gives unfinished trials back and exits with status 130 (143), SIGUSR1 with 75; --resume goes on.)");
}

}  // namespace millrace::cli
