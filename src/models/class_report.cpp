#include "models/class_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/result.h"

namespace millrace::models {
namespace {

constexpr std::size_t kWidestMatrix = 32;  // classes; more do not fit a terminal

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

double matthews(const ClassReport& report) {
    const auto s = static_cast<double>(report.samples), c = static_cast<double>(report.correct);
    double products = 0, predicted = 0, labelled = 0;
    for (const ClassFigures& figures : report.classes) {
        const auto p = static_cast<double>(figures.predicted), t = static_cast<double>(figures.samples);
        products += p * t;
        predicted += p * p;
        labelled += t * t;
    }
    // Each factor is exact below 2^53, so one class alone gives 0 and not a rounding error.
    return ratio(c * s - products, std::sqrt(s * s - predicted) * std::sqrt(s * s - labelled));
}

/// "3 Dress"
std::string label_of(std::size_t index, const std::vector<std::string>& names) {
    return index < names.size() ? fmt::format("{} {}", index, names[index]) : std::to_string(index);
}

std::string figure(double value, std::uint64_t denominator) { return denominator > 0 ? fmt::format("{:.4f}", value) : "-"; }

}  // namespace

ClassReport class_report(Confusion confusion, std::int32_t classes) {
    ClassReport report;
    report.classes.resize(static_cast<std::size_t>(classes));
    for (const auto& [pair, rows] : confusion) {
        const auto [label, prediction] = pair;
        MILLRACE_ASSERT(label >= 0 && label < classes && prediction >= 0 && prediction < classes, "no such class");
        report.samples += rows;
        report.classes[static_cast<std::size_t>(label)].samples += rows;
        report.classes[static_cast<std::size_t>(prediction)].predicted += rows;
        if (label != prediction) continue;
        report.classes[static_cast<std::size_t>(label)].correct += rows;
        report.correct += rows;
    }
    report.confusion = std::move(confusion);
    double sum = 0, present = 0;
    for (ClassFigures& figures : report.classes) {
        const auto correct = static_cast<double>(figures.correct);
        const std::uint64_t either = figures.samples + figures.predicted;
        figures.precision = ratio(correct, static_cast<double>(figures.predicted));
        figures.recall = ratio(correct, static_cast<double>(figures.samples));
        figures.f1 = ratio(2 * correct, static_cast<double>(either));
        sum += figures.f1;
        present += either > 0 ? 1 : 0;
    }
    report.macro_f1 = ratio(sum, present);
    report.accuracy = ratio(static_cast<double>(report.correct), static_cast<double>(report.samples));
    report.mcc = matthews(report);
    return report;
}

std::string class_table(const ClassReport& report, const std::vector<std::string>& names) {
    const std::size_t count = report.classes.size();
    std::size_t width = std::string_view("macro mean").size();
    for (std::size_t i = 0; i < count; ++i) width = std::max(width, label_of(i, names).size());
    std::string text = fmt::format("{:{}}  precision   recall       F1   samples  predicted\n", "class", width);
    for (std::size_t i = 0; i < count; ++i) {
        const ClassFigures& c = report.classes[i];
        text +=
            fmt::format("{:{}} {:>10} {:>8} {:>8} {:>9} {:>10}\n", label_of(i, names), width, figure(c.precision, c.predicted),
                        figure(c.recall, c.samples), figure(c.f1, c.samples + c.predicted), c.samples, c.predicted);
    }
    text += fmt::format("{:{}} {:>28.4f}\n", "macro mean", width, report.macro_f1);
    text += fmt::format("{:{}} {:>28.4f}\n", "MCC", width, report.mcc);
    if (count > kWidestMatrix) return text + fmt::format("confusion matrix of {} classes: too wide to print\n", count);
    std::size_t cell = std::to_string(count).size();
    for (const auto& [pair, rows] : report.confusion) cell = std::max(cell, std::to_string(rows).size());
    text += fmt::format("{:{}}  {}\n{:{}}", "label", width, "predicted as", "", width);
    for (std::size_t i = 0; i < count; ++i) text += fmt::format("  {:>{}}", i, cell);
    for (std::size_t label = 0; label < count; ++label) {
        text += fmt::format("\n{:{}}", label_of(label, names), width);
        for (std::size_t i = 0; i < count; ++i) text += fmt::format("  {:>{}}", report.at(label, i), cell);
    }
    return text + "\n";
}

std::vector<std::pair<Confusion::key_type, std::uint64_t>> most_confused(const ClassReport& report, std::size_t most) {
    std::vector<std::pair<Confusion::key_type, std::uint64_t>> wrong;
    for (const auto& entry : report.confusion)
        if (entry.first.first != entry.first.second) wrong.emplace_back(entry);
    std::ranges::stable_sort(wrong, std::ranges::greater{}, [](const auto& entry) { return entry.second; });
    wrong.resize(std::min(most, wrong.size()));
    return wrong;
}

std::vector<std::string> class_names(const data::Fields& wants, const data::Fields& has, std::size_t classes) {
    for (const data::Field& wanted : wants) {
        const data::Field* field = data::find_field(has, wanted.name);
        if (field != nullptr && field->names.size() == classes) return field->names;
    }
    return {};
}

}  // namespace millrace::models
