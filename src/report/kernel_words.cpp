#include "report/kernel_words.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "report/html_findings.h"

namespace millrace::report {
namespace {

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
