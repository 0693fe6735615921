#include "record/sinks.h"

#include <array>

#include "base/log.h"

namespace millrace::record {

std::string_view name_of(RowKind kind) {
    static constexpr std::array<std::string_view, 5> kNames{"sample", "interval", "epoch", "test", "components"};
    return kNames.at(static_cast<std::size_t>(kind));
}

SinkThread::SinkThread(std::vector<std::unique_ptr<Sink>> sinks, std::size_t capacity)
    : sinks_(std::move(sinks)), idle_for_good_(sinks_.empty()), capacity_(capacity) {
    if (!idle_for_good_) thread_ = std::jthread([this](const std::stop_token& stop) { loop(stop); });
}

void SinkThread::post(SinkRow row) {
    if (idle_for_good_) return;
    {
        const std::lock_guard lock(mutex_);
        if (posted_ - written_ >= capacity_) {
            ++dropped_;
            return;
        }
        rows_.push_back(std::move(row));
        ++posted_;
    }
    wake_.notify_one();
}

void SinkThread::drain() {
    if (idle_for_good_) return;
    std::unique_lock lock(mutex_);
    const std::uint64_t mine = ++drains_;
    drain_at_ = posted_;
    wake_.notify_one();
    served_.wait(lock, [&] { return drained_ >= mine; });
}

std::uint64_t SinkThread::dropped() const {
    const std::lock_guard lock(mutex_);
    return dropped_;
}

std::vector<std::string> SinkThread::failed() const {
    const std::lock_guard lock(mutex_);
    return failed_;
}

void SinkThread::for_each_sink(const std::function<base::Status(Sink&)>& act) {
    for (std::unique_ptr<Sink>& sink : sinks_) {
        if (!sink) continue;
        const base::Status done = act(*sink);
        if (done.ok()) continue;
        const std::string reason = sink->name() + ": " + done.error().text();
        MILLRACE_LOG(warn, "{}; nothing more goes there, all else goes on", reason);
        sink.reset();
        const std::lock_guard lock(mutex_);
        failed_.push_back(reason);
    }
}

void SinkThread::loop(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    for (;;) {
        wake_.wait(lock, stop, [this] { return !rows_.empty() || drains_ != drained_; });
        if (drains_ != drained_ && written_ >= drain_at_) {
            const std::uint64_t serving = drains_;
            lock.unlock();
            for_each_sink([](Sink& sink) { return sink.flush(); });
            lock.lock();
            drained_ = serving;
            served_.notify_all();
        } else if (!rows_.empty()) {
            const SinkRow row = std::move(rows_.front());
            rows_.pop_front();
            lock.unlock();
            for_each_sink([&](Sink& sink) { return sink.write(row); });
            lock.lock();
            ++written_;
        } else {
            return;
        }
    }
}

}  // namespace millrace::record
