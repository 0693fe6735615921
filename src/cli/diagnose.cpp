#include "diagnose/diagnose.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/run_arguments.h"
#include "io/pending_file.h"
#include "record/run_directory.h"
#include "record/trace_file.h"
#include "report/diagnosis_forms.h"
#include "report/kineto_export.h"
#include "report/sample_export.h"

namespace millrace::cli {
namespace {

struct DiagnoseArguments {
    std::string run, markdown, html, trace, speedscope, collapsed;
    bool json = false, all = false;
};

constexpr const char* kDiagnoseFooter =
    R"(RUN is a folder that `millrace record` or `millrace train` wrote, also one that is still being written, or a trace of PyTorch's
profiler (trace.json, trace.json.gz).

Examples:
  millrace record -o runs/slow -- python train.py     record the program as it is
  millrace diagnose runs/slow                         one screen: how busy the GPU was, where the rest went, what to change
  millrace diagnose runs/slow --html slow.html        the same as a page with timelines, for people who never saw a profiler
  millrace diagnose runs/slow --all                   every finding with evidence and call stack
  millrace diagnose runs/slow --trace slow.json.gz    for https://ui.perfetto.dev
  millrace diagnose runs/slow --speedscope slow.json  where the host's time went, for https://www.speedscope.app
  millrace diagnose trace.json.gz --json              for programs; keys in docs/doctor-reports.md

Exit status: 0 nothing worth changing, 1 findings, 2 usage or bad input, 4 no step of a GPU program in RUN.)";

constexpr int kFindings = 1;

/// To write over what is read would lose the recording.
base::Status check_not_of_run(const std::string& run, const std::string& path) {
    namespace fs = std::filesystem;
    std::error_code failed;
    const fs::path read = fs::weakly_canonical(fs::absolute(run, failed), failed);
    const fs::path folder = fs::is_directory(read, failed) ? read : read.parent_path();
    const fs::path written = fs::weakly_canonical(fs::absolute(path, failed), failed);
    const char* const files[] = {record::kTraceName, "manifest.json", "metrics.jsonl", "samples.jsonl", "events.jsonl"};
    if (!fs::equivalent(written.parent_path(), folder, failed) || std::ranges::find(files, written.filename()) == std::end(files))
        return base::ok();
    return base::Error{"is a file of the run that is read; choose another name", path};
}

/// Every file is looked at before anything long begins, so that a bad name costs no time and leaves nothing half-written.
base::Status check_outputs(const DiagnoseArguments& given) {
    for (const std::string* path : {&given.markdown, &given.html, &given.trace, &given.speedscope, &given.collapsed})
        if (!path->empty()) {
            MILLRACE_TRY(check_not_of_run(given.run, *path));
            MILLRACE_TRY(io::check_writable(*path));
        }
    const io::NamedFile files[] = {
        {"RUN", given.run},       {"--md", given.markdown},           {"--html", given.html},
        {"--trace", given.trace}, {"--speedscope", given.speedscope}, {"--collapsed", given.collapsed}};
    return io::check_apart(files);
}

base::Status write_trace(const diagnose::Timeline& timeline, const diagnose::Diagnosis& diagnosis, const std::string& path) {
    MILLRACE_LET(written, report::export_trace(timeline, diagnosis, path));
    if (written.left_out > 0)
        MILLRACE_LOG(warn, "{}: {} events at the end were left out, no viewer opens more than 2 GiB", path, written.left_out);
    return base::ok();
}

using SampleWriter = base::Status (*)(const diagnose::Timeline&, io::ByteSink&);

base::Status write_samples(const diagnose::Timeline& timeline, const std::string& path, SampleWriter write) {
    if (path.empty()) return base::ok();
    if (timeline.samples.empty())
        return base::Error{
            "cannot be written: RUN has no samples of threads (a recording made with --no-samples, a trace of a profiler)", path,
            kNoData};
    MILLRACE_TRY(io::write_atomically(path, [&](io::FileWriter& file) { return write(timeline, file); }));
    return base::ok();
}

int status_of(const diagnose::Diagnosis& diagnosis) {
    if (!diagnosis.findings.empty() && !diagnosis.healthy) return kFindings;
    return diagnosis.steps == 0 ? kNoData : 0;
}

/// Trials of a sweep share their steps, so there are no rows of one training.
base::Status check_not_sweep(const std::string& run) {
    const auto manifest = record::read_manifest(run);
    if (!manifest.ok() || manifest->command.size() < 2 || manifest->command[1] != "sweep") return base::ok();
    return base::Error{
        fmt::format("is the run of a sweep, whose trials train side by side and leave no timeline; `millrace train {}/best.toml` "
                    "leaves one",
                    run),
        run, kNoData};
}

base::Result<int> run_diagnose(const DiagnoseArguments& given) {
    MILLRACE_TRY(check_not_sweep(given.run));
    MILLRACE_TRY(check_outputs(given));
    MILLRACE_LET(timeline, read_run_with_progress(given.run));
    const diagnose::Diagnosis diagnosis = diagnose::diagnose(timeline);
    if (!given.markdown.empty()) MILLRACE_TRY(io::write_atomically(given.markdown, report::diagnosis_markdown(diagnosis)));
    if (!given.html.empty()) MILLRACE_TRY(io::write_atomically(given.html, report::diagnosis_html(diagnosis, timeline)));
    if (!given.trace.empty()) MILLRACE_TRY(write_trace(timeline, diagnosis, given.trace));
    MILLRACE_TRY(write_samples(timeline, given.speedscope, report::write_speedscope));
    MILLRACE_TRY(write_samples(timeline, given.collapsed, report::write_collapsed));
    if (given.json) {
        say(report::diagnosis_json(diagnosis));
    } else {
        report::TextOptions options = text_options();
        options.all = given.all;
        say(report::diagnosis_text(diagnosis, options));
    }
    return status_of(diagnosis);
}

}  // namespace

void add_diagnose(const Command& program) {
    auto [command, given] = program.command<DiagnoseArguments>(
        "diagnose", "say where the time of a recorded program went and what to do about it", run_diagnose);
    command.option("run RUN", given.run, "folder of a run, or a trace of PyTorch's profiler").required();
    command.flag("--json", given.json, "print the diagnosis as JSON");
    command.flag("--all", given.all, "print every finding with its evidence and call stack, not one screen");
    command.option("--md FILE", given.markdown, "write it as Markdown, too");
    command.option("--html FILE", given.html, "write a page with timelines that loads nothing, too");
    command.option("--trace FILE", given.trace, "write it as a trace for Perfetto, too; packed when the name ends in .gz");
    command.option("--speedscope FILE", given.speedscope, "write the samples of threads for https://www.speedscope.app, too");
    command.option("--collapsed FILE", given.collapsed, "write them as collapsed stacks, for flamegraph.pl and the like, too");
    command.footer(kDiagnoseFooter);
}

}  // namespace millrace::cli
