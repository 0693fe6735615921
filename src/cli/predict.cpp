#include <fmt/format.h>

#include "base/log.h"
#include "cli/commands.h"
#include "train/predict.h"

namespace millrace::cli {
namespace {

struct PredictArguments {
    std::string run, out, device;
    std::vector<std::string> inputs;
    std::optional<std::int64_t> batch;
};

base::Result<int> run_predict(const PredictArguments& given) {
    for (const std::string& input : given.inputs) {
        const io::NamedFile files[] = {{"INPUT", input}, {"--out", given.out}};
        MILLRACE_TRY(io::check_apart(files));
    }
    base::LiveLines line(base::stderr_is_terminal());
    train::PredictRequest request{given.run, {given.inputs.begin(), given.inputs.end()}, given.out, given.device};
    request.batch = given.batch.value_or(0);
    request.progress = [&](std::uint64_t done, std::uint64_t all) { line.draw(fmt::format("{} of {} predicted", done, all)); };
    const auto report = train::predict(request);
    line.draw({});
    if (!report.ok()) return report.error();
    if (!report->summary.empty()) say(report->summary + "\n");
    say(fmt::format("{} {} in {:.1f} s on {}{}; wrote {}\n", report->samples, report->unit, report->seconds, report->device,
                    report->failed == 0 ? "" : fmt::format(", {} of them without an answer", report->failed), given.out));
    return 0;
}

}  // namespace

void add_predict(const Command& program) {
    auto [command, given] =
        program.command<PredictArguments>("predict", "predict other data with a run's best weights", run_predict);
    command.option("RUN", given.run, "run directory").required();
    command.option("INPUT", given.inputs, "data in any form that data.path takes, also single pictures").required();
    command.option("--out FILE", given.out, "file to write, a row for each sample: .csv, .jsonl or .npy").required();
    command.option("--device", given.device, "auto, cpu or cuda").one_of({"auto", "cpu", "cuda"});
    command.option("--batch ROWS", given.batch, "rows at once; 0: as the run evaluates");
    command.footer(
        "Examples:\n  millrace predict runs/photos holiday --out holiday.csv\n"
        "  millrace predict runs/houses new.csv --out prices.jsonl\n\n"
        "Classes have their probabilities, numbers are in the unit of the training data. Answers in INPUT are not looked at.\n"
        "What cannot be read has empty cells.");
}

void add_classify(const Command& program) {
    auto [command, given] = program.command<PredictArguments>(
        "classify", "predict the recordings of a folder with a run's best weights", run_predict);
    command.option("RUN", given.run, "run directory").required();
    command.option("--in DIR", given.inputs, "folder of files, at any depth").required();
    command.option("--out CSV", given.out, "table to write, a row for each file").required();
    command.option("--device", given.device, "auto, cpu or cuda").one_of({"auto", "cpu", "cuda"});
    command.footer("The same as `millrace predict RUN DIR --out CSV`. A file that cannot be read has a row with its error.");
}

}  // namespace millrace::cli
