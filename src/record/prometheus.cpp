#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "record/http_responder.h"
#include "record/sinks.h"

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
        if (letter == '\\' || letter == '\n' || (letter == '"' && escape_quotes)) out += '\\';
        out += letter == '\n' ? 'n' : letter;
    }
    return out;
}

std::string number_text(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
    return fmt::format("{}", value);
}

constexpr std::chrono::seconds kPause{1};

class PrometheusFileSink final : public Sink {
public:
    PrometheusFileSink(io::Path path, const sense::MachineFacts& facts, const base::Clock& clock)
        : path_(std::move(path)), board_(facts), clock_(clock) {}

    [[nodiscard]] std::string name() const override { return "Prometheus " + path_.string(); }

    base::Status write(const SinkRow& row) override {
        board_.take(row);
        pending_ = true;
        return written_ && clock_.now() - *written_ < kPause ? base::ok() : replace();
    }

    base::Status flush() override { return pending_ ? replace() : base::ok(); }

    base::Status replace() {
        MILLRACE_TRY(io::write_atomically(path_, board_.text()));
        if (pending_) written_ = clock_.now();
        pending_ = false;
        return base::ok();
    }

private:
    io::Path path_;
    PrometheusBoard board_;
    const base::Clock& clock_;
    std::optional<std::chrono::nanoseconds> written_;
    bool pending_ = false;
};

class PrometheusPortSink final : public Sink {
public:
    explicit PrometheusPortSink(const sense::MachineFacts& facts) : board_(facts) {}

    base::Status listen(const std::string& address, int port) {
        MILLRACE_SET(responder_, HttpResponder::start(address, port, [this](std::string_view path) { return reply_to(path); }));
        return base::ok();
    }

    [[nodiscard]] std::string name() const override { return fmt::format("Prometheus http://{}/metrics", responder_->address()); }

    base::Status write(const SinkRow& row) override {
        const std::lock_guard lock(mutex_);
        board_.take(row);
        return base::ok();
    }

private:
    HttpReply reply_to(std::string_view path) {
        if (path == "/")
            return {200, "text/html; charset=utf-8", "<!doctype html><title>Millrace</title><a href=\"/metrics\">metrics</a>\n"};
        if (path != "/metrics") return {404, "text/plain; charset=utf-8", "there is nothing but /metrics here\n"};
        const std::lock_guard lock(mutex_);
        return {200, "text/plain; version=0.0.4; charset=utf-8", board_.text()};
    }

    std::mutex mutex_;  ///< guards the board, which the writing thread and the responder's share
    PrometheusBoard board_;
    std::unique_ptr<HttpResponder> responder_;  ///< goes first: its thread uses what is above
};

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

base::Result<std::unique_ptr<Sink>> prometheus_file_sink(const io::Path& path, const sense::MachineFacts& facts,
                                                         const base::Clock& clock) {
    auto sink = std::make_unique<PrometheusFileSink>(path, facts, clock);
    // Empty at first: a folder that cannot be written to shows now, not after the first hour.
    MILLRACE_TRY(sink->replace());
    return std::unique_ptr<Sink>(std::move(sink));
}

base::Result<std::unique_ptr<Sink>> prometheus_port_sink(const std::string& address, int port, const sense::MachineFacts& facts) {
    auto sink = std::make_unique<PrometheusPortSink>(facts);
    MILLRACE_TRY(sink->listen(address.empty() ? "127.0.0.1" : address, port));
    return std::unique_ptr<Sink>(std::move(sink));
}

}  // namespace millrace::record
