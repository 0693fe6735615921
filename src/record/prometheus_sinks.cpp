#include <fmt/format.h>

#include "record/http_responder.h"
#include "record/prometheus_text.h"
#include "record/sinks.h"

namespace millrace::record {
namespace {

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

/// What the writing thread and the responder's thread share.
struct SharedBoard {
    explicit SharedBoard(const sense::MachineFacts& facts) : board(facts) {}
    std::mutex mutex;
    PrometheusBoard board;
};

HttpReply reply_to(SharedBoard& shared, std::string_view path) {
    if (path == "/")
        return {200, "text/html; charset=utf-8", "<!doctype html><title>Millrace</title><a href=\"/metrics\">metrics</a>\n"};
    if (path != "/metrics") return {404, "text/plain; charset=utf-8", "there is nothing but /metrics here\n"};
    const std::lock_guard lock(shared.mutex);
    return {200, "text/plain; version=0.0.4; charset=utf-8", shared.board.text()};
}

class PrometheusPortSink final : public Sink {
public:
    PrometheusPortSink(std::unique_ptr<SharedBoard> shared, std::unique_ptr<HttpResponder> responder)
        : shared_(std::move(shared)), responder_(std::move(responder)) {}

    [[nodiscard]] std::string name() const override { return fmt::format("Prometheus http://{}/metrics", responder_->address()); }

    base::Status write(const SinkRow& row) override {
        const std::lock_guard lock(shared_->mutex);
        shared_->board.take(row);
        return base::ok();
    }

private:
    std::unique_ptr<SharedBoard> shared_;
    std::unique_ptr<HttpResponder> responder_;  ///< goes first: its thread uses what is shared
};

}  // namespace

base::Result<std::unique_ptr<Sink>> prometheus_file_sink(const io::Path& path, const sense::MachineFacts& facts,
                                                         const base::Clock& clock) {
    auto sink = std::make_unique<PrometheusFileSink>(path, facts, clock);
    // Empty at first: a folder that cannot be written to shows now, not after the first hour.
    MILLRACE_TRY(sink->replace());
    return std::unique_ptr<Sink>(std::move(sink));
}

base::Result<std::unique_ptr<Sink>> prometheus_port_sink(const std::string& address, int port, const sense::MachineFacts& facts) {
    auto shared = std::make_unique<SharedBoard>(facts);
    MILLRACE_LET(responder,
                 HttpResponder::start(address.empty() ? "127.0.0.1" : address, port,
                                      [board = shared.get()](std::string_view path) { return reply_to(*board, path); }));
    return std::unique_ptr<Sink>(std::make_unique<PrometheusPortSink>(std::move(shared), std::move(responder)));
}

}  // namespace millrace::record
