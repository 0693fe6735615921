#include <fmt/format.h>

#include <memory>

#include "base/live_lines.h"
#include "base/log.h"
#include "cli/commands.h"
#include "io/csv.h"
#include "io/pending_file.h"
#include "train/evaluate.h"
#include "train/reports.h"
#include "train/setup.h"

namespace millrace::cli {
namespace {

struct ClassifyArguments {
    std::string run, in, out, device;
};

std::string classifying_families() {
    std::string names;
    for (const models::Family& family : models::families())
        if (family.classify != nullptr) names += (names.empty() ? "" : ", ") + family.name;
    return names;
}

base::Result<int> run_classify(const ClassifyArguments& given) {
    MILLRACE_TRY(io::check_writable(given.out));
    MILLRACE_LET(best, train::load_best(given.run, given.device, ""));
    if (best.family->classify == nullptr)
        return base::Error{fmt::format("{} classifies no files; that is done by {}", best.family->name, classifying_families()),
                           given.run};
    MILLRACE_LET(device, train::choose_device(best.recipe.text("device")));
    MILLRACE_LET(precision, train::choose_precision(best.recipe.text("precision"), device));
    std::string table = io::csv_line(best.family->classify_columns);
    models::ClassifyRequest request{best.recipe, best.checkpoint, device, precision, train::best_member(best), given.in, {}, {}};
    request.row = [&](const std::vector<std::string>& fields) { table += io::csv_line(fields); };
    base::LiveLines line(base::stderr_is_terminal());
    request.progress = [&](std::uint64_t done, std::uint64_t total) { line.draw(fmt::format("{} of {} files", done, total)); };
    auto report = best.family->classify(request);
    line.draw({});
    if (!report.ok()) return report.error();
    MILLRACE_TRY(io::write_atomically(given.out, io::bytes_of(table)));
    say(fmt::format(
        "{}\n{} files in {:.1f} s on {}{}; wrote {}\n", report->summary, report->files, report->seconds, report->device,
        report->failed == 0 ? "" : fmt::format(", {} of them without an answer (see the column notes)", report->failed),
        given.out));
    return 0;
}

}  // namespace

void add_classify(const Command& program) {
    auto given = std::make_shared<ClassifyArguments>();
    const Command command = program.command(
        "classify", fmt::format("decide about the files of a folder with a run's best weights ({})", classifying_families()));
    command.option("RUN", given->run, "run directory").required();
    command.option("--in", given->in, "folder of files, at any depth").required().placeholder("DIR");
    command.option("--out", given->out, "table to write, a row for each file").required().placeholder("CSV");
    command.option("--device", given->device, "auto, cpu or cuda").one_of({"auto", "cpu", "cuda"});
    command.footer(
        "Examples:\n  millrace classify runs/leak --in recordings --out decisions.csv\n\n"
        "A file that cannot be read has a row with its error.");
    command.action([given] { return run_classify(*given); });
}

}  // namespace millrace::cli
