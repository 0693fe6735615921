#include "report/doctor_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/result.h"
#include "base/units.h"
#include "report/html_sections.h"

namespace millrace::report {
namespace {

using diagnose::Kind;
using diagnose::Owner;

constexpr double kUnlike = 0.05;  ///< of a step: what is not worth saying twice

constexpr std::array<OwnerWords, diagnose::kOwners> kOwnerWords{{
    {"computing", "The GPU ran kernels: the work it is there for."},
    {"communicating", "The GPU exchanged data with other GPUs."},
    {"copying", "The GPU moved data to or from the host's memory and computed nothing."},
    {"waiting for data", "The next batch was not ready: the data loader is slower than the GPU."},
    {"host waits for GPU", "The program waited for the GPU to finish, so that the GPU then had nothing queued to go on with."},
    {"allocating memory", "GPU memory was taken from or given back to the driver in the middle of a step."},
    {"slow copies", "Copies out of ordinary (pageable) memory, which the driver stages piece by piece while the program waits."},
    {"launching kernels", "The program was busy handing over many small kernels; the GPU finished each before the next came."},
    {"Python work", "The program computed in Python while the GPU had nothing to do."},
    {"garbage collection", "Python collected garbage while the GPU had nothing to do."},
    {"writing files", "The program wrote files, logs or checkpoints while the GPU had nothing to do."},
    {"pauses of the GPU",
     "The GPU had work queued and paused between two pieces of it: kernels of a graph, or one that needs another's result."},
    {"unexplained", "The GPU had nothing to do and the recording does not tell why."},
}};

constexpr std::array<std::string_view, diagnose::kKinds> kTitles{
    "The program waits for the GPU in the middle of a step",
    "GPU memory is taken and given back in every step",
    "The GPU waits for the data loader",
    "The GPU waits for the next small kernel",
    "Copies come out of ordinary memory",
    "The same work is done again in every step",
    "Python code keeps the GPU waiting",
    "Writing files keeps the GPU waiting",
    "Matrix kernels do without the tensor cores",
    "The batch is small for this GPU",
    "Validation is far slower than training",
    "GPU memory is nearly full",
    "The GPU was slowed down by power or heat",
    "One GPU is slower and the others wait for it",
};

constexpr std::array<GlossaryEntry, 12> kGlossary{{
    {"step", "step", "One round of training: a batch goes through the model, and the weights change once."},
    {"busy", "busy",
     "The share of a step in which the GPU computes, copies or talks to other GPUs. In the rest of it nothing runs there."},
    {"kernel", "kernel", "One piece of work for the GPU, such as a matrix product. A step is hundreds of them."},
    {"launch", "launch",
     "Handing a kernel to the GPU. It costs the host a few microseconds; the kernel itself runs later, in a queue."},
    {"host", "host", "The computer around the GPU: the processor, its memory, and the Python program that runs there."},
    {"sync", "synchronisation",
     "The program stops until the GPU has finished all that is queued. Reading one number of a GPU tensor does it."},
    {"pageable", "pageable memory",
     "Ordinary memory. The GPU cannot read it directly, so the driver copies it twice. Pinned memory is read directly."},
    {"loader", "data loader", "What reads, decodes and batches the samples, often in worker processes of its own."},
    {"window", "recording window",
     "Some tens of steps in which everything is recorded. Between windows only the speed is measured."},
    {"lost", "lost time",
     "How much shorter a step becomes when the recording is replayed without this cause. Not the length of the call."},
    {"gain", "possible gain", "The share of the step's time that the cure returns at most. Another cause may take its place."},
    {"confidence", "confidence", "How sure the doctor is of cause and place, from 0 to 100 %."},
}};

using diagnose::Activity;
using diagnose::KernelTable;
using diagnose::Units;

constexpr std::size_t kMostChainNames = 4;  ///< of a chain

double share_of(const KernelTable& table, double ms) { return table.gpu_ms > 0 ? ms / table.gpu_ms : 0; }

std::string line_text(const std::optional<diagnose::Frame>& where, const char* unknown) {
    if (!where || where->file.empty()) return unknown;
    const std::string file = file_name(where->file);
    return where->line > 0 && !where->native ? fmt::format("{}:{}", file, where->line) : file;
}

std::string activity_words(Activity activity) {
    std::string words(name_of(activity));
    std::ranges::replace(words, '_', '-');
    return words;
}

}  // namespace

OwnerWords words_of(Owner owner) { return kOwnerWords.at(static_cast<std::size_t>(owner)); }
std::string_view title_of(Kind kind) { return kTitles.at(static_cast<std::size_t>(kind)); }
std::span<const GlossaryEntry> glossary() { return kGlossary; }

std::string_view meaning_of(std::string_view key) {
    for (const GlossaryEntry& entry : kGlossary)
        if (entry.key == key) return entry.meaning;
    MILLRACE_ASSERT(false, std::string(key));
}

std::string place_text(const std::optional<diagnose::Frame>& where) {
    if (!where) return "place unknown";
    if (where->file.empty()) return where->function.empty() ? "place unknown" : where->function;
    if (where->native) return where->function.empty() ? where->file : where->function + " in " + where->file;
    std::string text = where->line > 0 ? fmt::format("{}:{}", where->file, where->line) : where->file;
    return where->function.empty() ? text : text + " in " + where->function;
}

std::string place_text(const diagnose::Finding& finding) {
    switch (finding.kind) {
        case Kind::kSmallBatch:
        case Kind::kMemoryEdge:
        case Kind::kThrottled: return finding.where ? place_text(finding.where) : "the whole program";
        default: return place_text(finding.where);
    }
}

std::string milliseconds_text(double milliseconds) {
    const double size = std::abs(milliseconds);
    const int decimals = size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : 3;
    return std::isfinite(milliseconds) ? fmt::format("{:.{}f} ms", milliseconds, decimals) : "not measured";
}

std::vector<PhrasePart> phrase_parts(std::string_view text) {
    std::vector<PhrasePart> parts;
    bool code = false;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t mark = text.find('`', at);
        // A last mark without its twin is a character like others.
        const bool closed = mark != std::string_view::npos && (code || text.find('`', mark + 1) != std::string_view::npos);
        const std::size_t end = closed ? mark : text.size();
        if (end > at) parts.push_back({std::string(text.substr(at, end - at)), code});
        if (!closed) break;
        code = !code;
        at = mark + 1;
    }
    return parts;
}

std::vector<Owner> owners_by_time(const diagnose::OwnerMs& ms, double least) {
    std::vector<Owner> owners;
    for (std::size_t at = 0; at < ms.size(); ++at)
        if (ms[at] > least) owners.push_back(static_cast<Owner>(at));
    std::ranges::stable_sort(owners, {}, [&](Owner owner) { return std::pair(!is_busy(owner), -ms[index_of(owner)]); });
    return owners;
}

std::string worked_text(const diagnose::Diagnosis& diagnosis) {
    if (!std::isfinite(diagnosis.busy_share)) return "How busy a GPU was is not measured";
    return fmt::format("The GPU worked {:.0f} % of the time{}", 100 * diagnosis.busy_share,
                       has_evaluation(diagnosis) ? " in training" : "");
}

std::string evaluation_text(const diagnose::Diagnosis& diagnosis) {
    if (!has_evaluation(diagnosis)) return {};
    const std::string text = fmt::format("Evaluation adds {} to each", milliseconds_text(diagnosis.evaluation_ms));
    if (!diagnosis.undisturbed_evaluation_ms) return text;
    return text + fmt::format(" ({} unrecorded)", milliseconds_text(*diagnosis.undisturbed_evaluation_ms));
}

std::string gain_text(const diagnose::Finding& finding) {
    if (!finding.gain_upper_bound) return {};
    return fmt::format("at most {:.1f} % of a step comes back{}{}", 100 * *finding.gain_upper_bound,
                       finding.assumption.empty() ? "" : ", if ", finding.assumption);
}

std::string step_text(const diagnose::Diagnosis& diagnosis) {
    return diagnose::has_uneven_steps(diagnosis) || diagnosis.unseen_loading_ms > 0
               ? milliseconds_text(diagnose::mean_step_ms(diagnosis)) + " on average"
               : milliseconds_text(diagnosis.step_ms);
}

std::optional<std::string> unrecorded_busy_text(const diagnose::Diagnosis& diagnosis) {
    // Where some steps are much longer than most, it is unknown what the mean one takes.
    if (diagnose::has_uneven_steps(diagnosis) && diagnosis.unseen_loading_ms <= 0) return std::nullopt;
    const auto share = diagnose::undisturbed_busy_share(diagnosis);
    if (!share || std::abs(*share - diagnosis.busy_share) < kUnlike) return std::nullopt;
    return fmt::format("{:.0f} %", 100 * *share);
}

std::string recorded_aside(const diagnose::Diagnosis& diagnosis) {
    if (diagnosis.unseen_loading_ms <= 0) return "";
    return fmt::format(" ({} in {} recorded)", milliseconds_text(diagnose::mean_step_ms(diagnosis) - diagnosis.unseen_loading_ms),
                       base::print_count(diagnosis.steps));
}

std::string steps_text(const diagnose::Diagnosis& diagnosis, const std::string& each) {
    if (const std::string aside = recorded_aside(diagnosis); !aside.empty())
        return fmt::format("steps of {}{}", milliseconds_text(diagnose::mean_step_ms(diagnosis)), aside);
    return fmt::format("{} step{} of {}", base::print_count(diagnosis.steps), diagnosis.steps == 1 ? "" : "s", each);
}

std::optional<std::string> unrecorded_text(const diagnose::Diagnosis& diagnosis) {
    if (!diagnosis.undisturbed_step_ms || *diagnosis.undisturbed_step_ms == diagnosis.step_ms) return std::nullopt;
    const double spoken_of = diagnose::mean_step_ms(diagnosis);
    if (diagnosis.unseen_loading_ms > 0 && std::abs(spoken_of - *diagnosis.undisturbed_step_ms) < kUnlike * spoken_of)
        return std::nullopt;
    return milliseconds_text(*diagnosis.undisturbed_step_ms);
}

std::string overhead_text(const diagnose::Diagnosis& diagnosis) {
    std::string text = diagnosis.overhead_share
                           ? fmt::format("recording cost {:.1f} % of the run", 100 * *diagnosis.overhead_share)
                           : "what recording cost was not measured";
    if (diagnosis.window_overhead_share)
        text += fmt::format(" ({:.1f} % inside its windows)", 100 * *diagnosis.window_overhead_share);
    return text;
}

std::string dropped_text(const diagnose::Diagnosis& diagnosis) {
    if (diagnosis.dropped_records == 0) return "no record was lost";
    return fmt::format("{} record{} lost: what follows may be incomplete", base::print_count(diagnosis.dropped_records),
                       diagnosis.dropped_records == 1 ? " was" : "s were");
}

std::string file_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

std::string kernel_text(std::string_view name) {
    std::string text(name);
    for (const std::string_view part : {"void ", "(anonymous namespace)::", "at::native::", "c10::"})
        for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at)) text.erase(at, part.size());
    int depth = 0;
    for (std::size_t at = 0; at < text.size(); ++at) {
        depth += text[at] == '<' ? 1 : text[at] == '>' ? -1 : 0;
        if (text[at] == '(' && depth == 0 && at > 0) text.resize(at);
    }
    // Of the loops that PyTorch runs everything element-wise in, what they run says more.
    constexpr std::string_view kLoop = "elementwise_kernel<";
    std::size_t at = text.find(kLoop);
    if (at == std::string::npos) return text;
    for (at += kLoop.size(); at < text.size(); ++at) {
        if (text.compare(at, 5, "(int)") == 0)
            at += 4;
        else if (std::string_view("0123456789, ").find(text[at]) == std::string_view::npos)
            break;
    }
    return text.substr(at);
}

KernelCells cells_of(const KernelTable& table, const diagnose::KernelRow& row, const char* unknown) {
    return {fmt::format("{:.1f} %", 100 * share_of(table, row.ms)),
            base::print_count(row.calls),
            row.data_type.empty() ? unknown : std::string(row.data_type),
            row.units == Units::kTensor  ? "yes"
            : row.units == Units::kPlain ? "no"
                                         : unknown,
            row.waves ? base::print_figures(*row.waves, 2) : unknown,
            line_text(row.where, unknown),
            kernel_text(row.name)};
}

std::string tensor_text(const KernelTable& table) {
    double used = 0, unsaid = 0;
    for (const diagnose::KernelRow& row : table.rows)
        if (row.units != Units::kPlain) (row.units == Units::kTensor ? used : unsaid) += share_of(table, row.ms);
    return fmt::format("tensor cores used in {:.0f} % of its time{}", 100 * used,
                       unsaid >= 0.005 ? fmt::format(" (not known: {:.0f} %)", 100 * unsaid) : "");
}

std::string chain_text(const KernelTable& table, const diagnose::KernelChain& chain) {
    std::string names;
    for (std::size_t at = 0; at < std::min(kMostChainNames, chain.names.size()); ++at)
        names += (at > 0 ? ", " : "") + kernel_text(chain.names[at]);
    return fmt::format("{:.1f} %, {} element-wise kernels in a row{}: {}{}", 100 * share_of(table, chain.ms), chain.names.size(),
                       chain.where ? " at " + line_text(chain.where, "?") : "", names,
                       chain.names.size() > kMostChainNames ? ", ..." : "");
}

std::string run_text(const diagnose::RunLedger& run) {
    if (!run.wall_s) return {};
    std::string text = fmt::format("The run took {:.1f} s", *run.wall_s);
    if (!run.seconds) return text + "; what for is not measured";
    const char* between = ": ";
    for (std::size_t at = 0; at < diagnose::kActivities; ++at) {
        if ((*run.seconds)[at] < 0.05) continue;
        text += fmt::format("{}{} {:.1f} s", between, activity_words(static_cast<Activity>(at)), (*run.seconds)[at]);
        between = ", ";
    }
    return text;
}

}  // namespace millrace::report
