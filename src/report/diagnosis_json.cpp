#include "report/diagnosis_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "report/doctor_words.h"
#include "report/json_number.h"

namespace millrace::report {
namespace {

/// From the steps' own ends and what is known to be missing in them, so that a reader can hold the breakdown's sum against it.
std::optional<double> mean_of_steps(const diagnose::Diagnosis& diagnosis) {
    if (diagnosis.recorded.empty()) return std::nullopt;
    double sum = 0;
    for (const auto& [begin, end] : diagnosis.recorded) sum += static_cast<double>(end - begin) * 1e-6;
    return sum / static_cast<double>(diagnosis.recorded.size()) + diagnosis.unseen_loading_ms;
}

Json text(const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); }

Json frame(const diagnose::Frame& frame) {
    return {{"file", text(frame.file)},
            {"line", frame.line > 0 ? Json(frame.line) : Json(nullptr)},
            {"function", text(frame.function)},
            {"native", frame.native}};
}

Json finding(const diagnose::Finding& finding) {
    Json json{{"kind", name_of(finding.kind)}, {"severity", name_of(finding.severity)}};
    json["where"] = finding.where ? frame(*finding.where) : Json(nullptr);
    json["lost_ms_per_step"] = number(finding.lost_ms_per_step);
    json["gain_upper_bound"] = number(finding.gain_upper_bound);
    json["confidence"] = number(finding.confidence);
    json["what"] = finding.what;
    json["evidence"] = finding.evidence;
    json["fix"] = finding.fix;
    json["assumption"] = text(finding.assumption);
    json["stack"] = Json::array();
    for (const diagnose::Frame& each : finding.stack) json["stack"].push_back(frame(each));
    json["lines"] = Json::array();
    for (const diagnose::LineShare& line : finding.lines) {
        json["lines"].push_back(frame(line.frame));
        json["lines"].back()["launches"] = number(line.launches);
        json["lines"].back()["ms"] = number(line.ms);
    }
    return json;
}

}  // namespace

std::string diagnosis_json(const diagnose::Diagnosis& diagnosis) {
    const bool seen = diagnosis.steps > 0;
    const auto measured = [seen](double value) { return seen ? number(value) : Json(nullptr); };
    Json json{{"schema", kDiagnosisSchema}, {"healthy", diagnosis.healthy}};
    json["busy_share"] = measured(diagnosis.busy_share);
    json["undisturbed_busy_share"] = number(undisturbed_busy_share(diagnosis));
    json["steps"] = diagnosis.steps;
    json["step_ms"] = measured(diagnosis.step_ms);
    json["mean_step_ms"] = number(mean_of_steps(diagnosis));
    json["unseen_loading_ms_per_step"] = measured(diagnosis.unseen_loading_ms);
    json["evaluation_ms_per_step"] = measured(diagnosis.evaluation_ms);
    json["undisturbed_step_ms"] = number(diagnosis.undisturbed_step_ms);
    json["undisturbed_evaluation_ms_per_step"] = number(diagnosis.undisturbed_evaluation_ms);
    json["overhead_share"] = number(diagnosis.overhead_share);
    json["window_overhead_share"] = number(diagnosis.window_overhead_share);
    json["dropped_records"] = diagnosis.dropped_records;
    json["breakdown"] = Json::object();
    const bool divided = seen && breakdown_sum(diagnosis) > 0;
    for (std::size_t owner = 0; owner < diagnose::kOwners; ++owner)
        json["breakdown"][std::string(name_of(static_cast<diagnose::Owner>(owner)))] =
            divided ? number(diagnosis.breakdown_ms[owner]) : Json(nullptr);
    json["findings"] = Json::array();
    for (const diagnose::Finding& each : diagnosis.findings) json["findings"].push_back(finding(each));
    json["remarks"] = diagnosis.remarks;
    json["title"] = text(diagnosis.title);
    json["device"] = text(diagnosis.device_name);
    // Names come from other people's programs: bytes that are no UTF-8 must not end the report with an exception.
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace millrace::report
