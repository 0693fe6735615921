#pragma once
// The doctor's terms in the words of a reader who has never seen a profiler; every form of the report takes them from here.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/answer/diagnosis.h"

namespace millrace::report {

struct OwnerWords {
    std::string_view label;    ///< "waiting for data"
    std::string_view meaning;  ///< for people
};
OwnerWords words_of(diagnose::Owner owner);

/// "Host waits for the GPU": the heading of a finding.
std::string_view title_of(diagnose::Kind kind);

struct GlossaryEntry {
    std::string_view key;  ///< for links: "kernel"
    std::string_view term, meaning;
};
std::span<const GlossaryEntry> glossary();
std::string_view meaning_of(std::string_view key);  ///< of a key of the glossary

/// "train.py:41 in step"; "train.py" without a line; of native code the function and its library; "place unknown" without a
/// frame.
std::string place_text(const std::optional<diagnose::Frame>& where);
/// Of a finding: "the whole program" where its kind has no line.
std::string place_text(const diagnose::Finding& finding);

/// A text of a finding in pieces: what stands between backticks is code.
struct PhrasePart {
    std::string text;
    bool code = false;
};
std::vector<PhrasePart> phrase_parts(std::string_view text);

/// "28.1 ms", "0.042 ms": three figures that mean something.
std::string milliseconds_text(double milliseconds);

/// Those with more than `least` milliseconds: what the GPU did before why it waited, most first.
std::vector<diagnose::Owner> owners_by_time(const diagnose::OwnerMs& ms, double least = 0);
/// "The GPU worked 61 % of the time", with "in training" where evaluation is apart; or that this is not measured.
std::string worked_text(const diagnose::Diagnosis& diagnosis);
/// "Evaluation adds 1.24 ms to each (1.10 ms unrecorded)"; empty where it takes hardly any time.
std::string evaluation_text(const diagnose::Diagnosis& diagnosis);
/// "at most 12.1 % of a step comes back, if ..."; empty where that is not known.
std::string gain_text(const diagnose::Finding& finding);
/// How long a step is, as the breakdown has it where steps are uneven: "37.9 ms on average".
std::string step_text(const diagnose::Diagnosis& diagnosis);
/// " (28.0 ms in 1,500 recorded)" where windows are too fast to speak for the run, else nothing.
std::string recorded_aside(const diagnose::Diagnosis& diagnosis);
/// "1,500 steps of 28.0 ms", with `each` for the step, or the run's own where windows are too fast to speak for it.
std::string steps_text(const diagnose::Diagnosis& diagnosis, const std::string& each);
/// How busy the GPU is without recording, in percent, where that is worth saying.
std::optional<std::string> unrecorded_busy_text(const diagnose::Diagnosis& diagnosis);
/// A step without recording. Absent where it is not known, or as recorded.
std::optional<std::string> unrecorded_text(const diagnose::Diagnosis& diagnosis);

/// What recording cost,  without a full stop: "recording cost 0.4 % of the run (6.1 % inside its windows)".
std::string overhead_text(const diagnose::Diagnosis& diagnosis);
/// "no record was lost", "1,204 records were lost: ...".
std::string dropped_text(const diagnose::Diagnosis& diagnosis);

/// The name of a file without its folders.
std::string file_name(const std::string& path);
/// "softmax<float>": without its return type, its parameters, the framework's namespaces and loops.
std::string kernel_text(std::string_view name);

/// A row of the table; `unknown` stands for what is not known.
struct KernelCells {
    std::string share, calls, type, tensor, waves, place, name;
};
KernelCells cells_of(const diagnose::KernelTable& table, const diagnose::KernelRow& row, const char* unknown = "not known");

/// "tensor cores used in 61 % of its time (not known: 4 %)": of the GPU's
std::string tensor_text(const diagnose::KernelTable& table);
/// "12.4 %, 7 element-wise kernels in a row at train.py:41: add, mul, ..."
std::string chain_text(const diagnose::KernelTable& table, const diagnose::KernelChain& chain);
/// "The run took 61.2 s: training 40.0 s, ..."; empty where not even that is known.
std::string run_text(const diagnose::RunLedger& run);

}  // namespace millrace::report
