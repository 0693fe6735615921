#include "record/prometheus_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace millrace::record {
namespace {

/// How a unit of the table is named and scaled. Units that are not listed (rates, plain numbers) stay as they are.
struct BaseUnit {
    std::string_view unit, word, suffix;  ///< word: how names of the table spell the unit
    double factor;
};
constexpr std::array<BaseUnit, 9> kBaseUnits{{{"percent", "percent", "ratio", 0.01},
                                              {"ratio", "ratio", "ratio", 1},
                                              {"seconds", "seconds", "seconds", 1},
                                              {"milliseconds", "ms", "seconds", 0.001},
                                              {"bytes", "bytes", "bytes", 1},
                                              {"joules", "joules", "joules", 1},
                                              {"watts", "watts", "watts", 1},
                                              {"celsius", "celsius", "celsius", 1},
                                              {"megahertz", "mhz", "hertz", 1e6}}};

const BaseUnit* base_unit(const MetricInfo& metric) {
    for (const BaseUnit& unit : kBaseUnits)
        if (unit.unit == metric.unit) return &unit;
    return nullptr;
}

/// `escape_quotes`: in label values, not in HELP lines.
std::string escaped(std::string_view text, bool escape_quotes) {
    std::string out;
    for (const char letter : text) {
        if (letter == '\\')
            out += "\\\\";
        else if (letter == '\n')
            out += "\\n";
        else if (letter == '"' && escape_quotes)
            out += "\\\"";
        else
            out += letter;
    }
    return out;
}

std::string number_text(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
    return fmt::format("{}", value);
}

}  // namespace

std::string prometheus_name(const MetricInfo& metric) {
    const BaseUnit* unit = base_unit(metric);
    std::string name = metric.scope == MetricScope::kTrain ? "millrace_train" : "millrace";
    for (std::string_view rest = metric.name; !rest.empty();) {
        const std::size_t end = std::min(rest.find_first_of("/_"), rest.size());
        const std::string_view word = rest.substr(0, end);
        if (unit == nullptr || word != unit->word) name += fmt::format("_{}", word);
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    if (unit != nullptr) name += fmt::format("_{}", unit->suffix);
    return metric.kind == MetricKind::kCounter ? name + "_total" : name;
}

void PrometheusBoard::take(const SinkRow& row) {
    if (row.kind == RowKind::kSample)
        std::erase_if(values_, [](const auto& entry) { return entry.first.first->scope != MetricScope::kTrain; });
    for (const Point& point : row.points) values_[{point.metric, point.index}] = point.value;
}

std::string PrometheusBoard::labels_of(const MetricInfo& metric, int index) const {
    if (index < 0) return {};
    const auto at = static_cast<std::size_t>(index);
    switch (metric.scope) {
        case MetricScope::kMachine: return {};
        case MetricScope::kCore:
            return fmt::format("{{core=\"{}\"}}", at < facts_.core_numbers.size() ? facts_.core_numbers[at] : index);
        case MetricScope::kGpu:
            if (at >= facts_.gpus.size()) return fmt::format("{{gpu=\"{}\"}}", index);
            return fmt::format("{{gpu=\"{}\",uuid=\"{}\",name=\"{}\"}}", index, escaped(facts_.gpus[at].uuid, true),
                               escaped(facts_.gpus[at].name, true));
        case MetricScope::kTrain: return fmt::format("{{member=\"{}\"}}", index);
    }
    return {};
}

std::string PrometheusBoard::text() const {
    std::string out;
    const MetricInfo* open = nullptr;
    // Keys are pointers into one table: all values of a metric stand together, in the table's order.
    for (const auto& [key, value] : values_) {
        const auto& [metric, index] = key;
        const std::string name = prometheus_name(*metric);
        if (metric != open)
            out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, escaped(metric->meaning, false), name,
                               metric->kind == MetricKind::kCounter ? "counter" : "gauge");
        open = metric;
        const BaseUnit* unit = base_unit(*metric);
        out += fmt::format("{}{} {}\n", name, labels_of(*metric, index), number_text(value * (unit ? unit->factor : 1)));
    }
    return out;
}

}  // namespace millrace::record
