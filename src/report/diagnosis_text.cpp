#include "report/diagnosis_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "base/units.h"
#include "report/doctor_words.h"
#include "report/terminal.h"

namespace millrace::report {
namespace {

using diagnose::Diagnosis;
using diagnose::Owner;

constexpr std::size_t kLabelColumn = 2, kBarColumn = 22, kFigureRoom = 18;
constexpr double kSmallShare = 0.005;                     ///< of a step: what is less is added up
constexpr std::size_t kPlaceRoom = 16, kNameColumn = 54;  ///< of the table of kernels
constexpr std::size_t kLeastKernelLines = 5, kFewKernels = 5, kMostKernels = 20;
constexpr std::size_t kMostOwners = 6, kMostPhraseLines = 3;  ///< on one screen

/// The end of it, with a mark where something was left out: of a place the file's name and the line say most.
std::string ending(const std::string& text, std::size_t width) {
    std::size_t columns = columns_of(text);
    if (columns <= width) return text;
    std::size_t at = 0;
    for (; columns + 3 > width && at < text.size(); --columns)
        for (++at; at < text.size() && continues(text[at]);) ++at;
    return "..." + text.substr(at);
}

/// `share` of `width` columns, in eighths of one where the terminal can.
std::string share_bar(double share, std::size_t width, bool utf8) {
    const double columns = std::clamp(share, 0.0, 1.0) * static_cast<double>(width);
    if (!utf8) return std::string(static_cast<std::size_t>(std::lround(columns)), '#');
    static constexpr const char* kParts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    const auto eighths = static_cast<std::size_t>(std::lround(columns * 8));
    std::string text;
    for (std::size_t at = 0; at < eighths / 8; ++at) text += "█";
    return text + kParts[eighths % 8];
}

class DiagnosisWriter {
public:
    DiagnosisWriter(const Diagnosis& diagnosis, const TextOptions& options) : diagnosis_(diagnosis), options_(options) {}

    std::string text() {
        head();
        run();
        if (diagnosis_.steps > 0 && diagnose::sum_of(diagnosis_.breakdown_ms) > 0) breakdown();
        std::vector<std::string> end = closing();
        findings(end.size());
        kernels(end.size());
        lines_.insert(lines_.end(), end.begin(), end.end());
        std::string text;
        for (const std::string& line : lines_) text += line + "\n";
        return text;
    }

private:
    ViewLine line() const { return {options_.width, options_.colour}; }
    void put(const ViewLine& line) { lines_.push_back(line.text()); }

    void head() {
        const std::string device = diagnosis_.device_name.empty() ? "" : " (" + diagnosis_.device_name + ")";
        if (!diagnosis_.title.empty() || !device.empty()) {
            const std::size_t room = options_.width > columns_of(device) ? options_.width - columns_of(device) : 0;
            put(line().add(ending(diagnosis_.title, std::max<std::size_t>(room, 16))).add(device, Tone::kFaint));
        }
        if (diagnosis_.steps == 0) {
            put(line().add("No training steps on a GPU were found, so there is nothing to say about them.", Tone::kStrong));
            return;
        }
        ViewLine said = line();
        const double share = diagnosis_.busy_share;
        said.add(worked_text(diagnosis_), share >= 0.9   ? Tone::kGood
                                          : share >= 0.6 ? Tone::kCaution
                                          : share >= 0   ? Tone::kBad
                                                         : Tone::kPlain);
        said.add(": " + steps_text(diagnosis_, milliseconds_text(has_uneven_steps(diagnosis_) ? mean_step_ms(diagnosis_)
                                                                                              : diagnosis_.step_ms)));
        const auto busy = unrecorded_busy_text(diagnosis_), step = unrecorded_text(diagnosis_);
        const bool apart = busy || diagnosis_.unseen_loading_ms > 0;  // as it does not fit here
        if (step && !apart) said.add(fmt::format(" ({} unrecorded)", *step));
        put(said);
        if (step && apart)
            put(line().add(fmt::format("While nothing was recorded {}a step took {}",
                                       busy ? fmt::format("it worked {} of the time, ", *busy) : "", *step)));
        if (const std::string evaluation = evaluation_text(diagnosis_); !evaluation.empty())
            put(line().add(
                fmt::format("{}: {} steps per second", evaluation, base::print_figures(1000 / whole_step_ms(diagnosis_), 3))));
    }

    void run() {
        for (const std::string& part : wrapped(run_text(diagnosis_.run), options_.width))
            if (!part.empty()) put(line().add(part));
    }

    void row(std::string_view label, double ms, double sum, Tone tone) {
        const std::size_t width = options_.width - kBarColumn - kFigureRoom;
        const double share = sum > 0 ? ms / sum : 0;
        std::string figure = milliseconds_text(ms);
        put(line()
                .add("  ")
                .add(label)
                .pad(kBarColumn)
                .add(share_bar(share, width, options_.utf8), tone)
                .pad(kBarColumn + width)
                .add(fmt::format("{:>9}{:>7.1f} %", figure, 100 * share)));
    }

    void breakdown() {
        const double sum = diagnose::sum_of(diagnosis_.breakdown_ms);
        put(line());
        std::vector<Owner> shown = owners_by_time(diagnosis_.breakdown_ms, options_.all ? 0 : kSmallShare * sum);
        if (!options_.all && shown.size() > kMostOwners) shown.resize(kMostOwners);
        double rest = sum;
        for (const Owner owner : shown) {
            const double ms = diagnosis_.breakdown_ms[index_of(owner)];
            const bool vague = owner == Owner::kUnexplained || owner == Owner::kOther;
            row(words_of(owner).label, ms, sum, is_busy(owner) ? Tone::kGood : vague ? Tone::kFaint : Tone::kCaution);
            rest -= ms;
        }
        if (rest > 1e-4 * sum) row("all else", rest, sum, Tone::kFaint);
    }

    /// The lines of one finding: what and where, then why (unless `brief`), then what to do.
    std::vector<std::string> finding(std::size_t rank, const diagnose::Finding& finding, bool brief) const {
        std::vector<std::string> lines;
        ViewLine first = line();
        first.add(fmt::format("{:>2}. ", rank)).add(name_of(finding.kind), tone_of(finding.severity));
        if (finding.lost_ms_per_step > 0) {
            first.add(fmt::format("  loses {} per step", milliseconds_text(finding.lost_ms_per_step)));
            if (const double share = lost_share(diagnosis_, finding); share > 0)
                first.add(fmt::format(" ({:.1f} %)", 100 * share));
        }
        if (finding.confidence < 0.5) first.add("  not sure", Tone::kFaint);
        lines.push_back(first.text());
        lines.push_back(line().add("    ").add(ending(place_text(finding), options_.width - 4), Tone::kStrong).text());
        const auto phrase = [&](const char* mark, const std::string& text) {
            if (text.empty()) return;
            std::vector<std::string> parts = wrapped(text, options_.width - 6);
            if (!options_.all && parts.size() > kMostPhraseLines) {
                parts.resize(kMostPhraseLines);
                parts.back() = wrapped(parts.back(), options_.width - 10).front() + " ...";
            }
            for (std::size_t at = 0; at < parts.size(); ++at)
                lines.push_back(line().add("    ").add(at > 0 ? "  " : mark, Tone::kGood).add(parts[at]).text());
        };
        if (!brief) phrase("  ", finding.what);
        phrase("> ", finding.fix);
        if (!options_.all) return lines;
        phrase("= ", finding.evidence);
        phrase("+ ", gain_text(finding));
        for (const diagnose::Frame& frame : finding.stack)
            lines.push_back(
                line().add("      called from " + ending(place_text(frame), options_.width - 18), Tone::kFaint).text());
        return lines;
    }

    static Tone tone_of(diagnose::Severity severity) {
        return severity == diagnose::Severity::kCritical  ? Tone::kBad
               : severity == diagnose::Severity::kWarning ? Tone::kCaution
                                                          : Tone::kStrong;
    }

    void findings(std::size_t after) {
        if (diagnosis_.findings.empty()) {
            if (diagnosis_.healthy) {
                put(line());
                put(line().add("Nothing here is worth changing: a clean bill.", Tone::kGood));
            }
            return;
        }
        put(line());
        const std::size_t most = options_.height > after + 1 ? options_.height - after - 1 : 0;
        for (std::size_t at = 0; at < diagnosis_.findings.size(); ++at) {
            const std::size_t left = diagnosis_.findings.size() - at;
            const std::size_t taken = lines_.size() + (left > 1 ? 1 : 0), room = most > taken ? most - taken : 0;
            std::vector<std::string> lines = finding(at + 1, diagnosis_.findings[at], false);
            if (!options_.all && lines.size() > room) lines = finding(at + 1, diagnosis_.findings[at], true);
            const bool fits = options_.all || lines.size() <= room;
            if (!fits && at == 0) lines.resize(std::min(lines.size(), std::max<std::size_t>(room, 2)));
            if (fits || at == 0) lines_.insert(lines_.end(), lines.begin(), lines.end());
            const std::size_t unsaid = fits || at == 0 ? left - 1 : left;
            if (!fits || (!options_.all && unsaid > 0 && lines_.size() + 1 >= most)) {
                if (unsaid > 0) put(line().add(fmt::format("    and {} more: see with --all", unsaid), Tone::kFaint));
                return;
            }
        }
    }

    /// All of them, or as many as the screen has room for, if it has for a few.
    void kernels(std::size_t after) {
        const diagnose::KernelTable& table = diagnosis_.kernels;
        const std::size_t taken = lines_.size() + after + 1, room = options_.height > taken ? options_.height - taken : 0;
        if (table.rows.empty() || (!options_.all && room < kLeastKernelLines)) return;
        const std::size_t chains = std::min<std::size_t>(table.chains.size(), options_.all ? kMostKernels : 2);
        const std::size_t most = options_.all ? kMostKernels : std::min(kFewKernels, room - 3 - std::min(chains, room - 4));
        put(line());
        put(line().add("What the GPU computed: " + tensor_text(table)));
        put(line().add(
            fmt::format("{:>7}{:>8}  {:<6}{:<7}{:>5}  {:<16} kernel", "share", "calls", "type", "tensor", "waves", "line"),
            Tone::kFaint));
        for (const diagnose::KernelRow& row : std::span(table.rows).first(std::min(most, table.rows.size()))) {
            const KernelCells cells = cells_of(table, row, "-");
            put(line()
                    .add(fmt::format("{:>7}{:>8}  {:<6}{:<7}{:>5}  ", cells.share, cells.calls, cells.type, cells.tensor,
                                     cells.waves))
                    .add(ending(cells.place, kPlaceRoom))
                    .pad(kNameColumn)
                    .add(cells.name));
        }
        for (std::size_t at = 0; at < chains && (options_.all || lines_.size() + after + 1 < options_.height); ++at)
            put(line().add("  could be fused: ").add(chain_text(table, table.chains[at])));
    }

    std::vector<std::string> closing() const {
        std::vector<std::string> lines{""};
        const auto add = [&](const std::string& text, Tone tone) {
            for (const std::string& part : wrapped(text, options_.width)) lines.push_back(line().add(part, tone).text());
        };
        for (std::size_t at = 0; at < diagnosis_.remarks.size(); ++at) {
            if (!options_.all && at == 1) {
                add(fmt::format("({} more with --all)", diagnosis_.remarks.size() - 1), Tone::kFaint);
                break;
            }
            std::vector<std::string> parts = wrapped("note: " + diagnosis_.remarks[at], options_.width);
            if (!options_.all && parts.size() > 2) parts = {parts[0], parts[1].substr(0, options_.width - 4) + " ..."};
            for (const std::string& part : parts) lines.push_back(line().add(part).text());
        }
        if (diagnosis_.dropped_records > 0) {
            add(overhead_text(diagnosis_), Tone::kFaint);
            add(dropped_text(diagnosis_), Tone::kCaution);
        } else {
            add(overhead_text(diagnosis_) + "; " + dropped_text(diagnosis_), Tone::kFaint);
        }
        return lines;
    }

    const Diagnosis& diagnosis_;
    TextOptions options_;
    std::vector<std::string> lines_;
};

}  // namespace

std::string diagnosis_text(const Diagnosis& diagnosis, const TextOptions& options) {
    TextOptions kept = options;
    kept.width = std::max<std::size_t>(options.width, 60);
    kept.height = std::max<std::size_t>(options.height, 16);
    return DiagnosisWriter(diagnosis, kept).text();
}

}  // namespace millrace::report
