#include "record/sinks.h"

#include <gtest/gtest.h>

#include <future>
#include <mutex>

#include "captured_log.h"

namespace millrace::record {
namespace {

/// What a sink was given, shared with the test that outlives it.
struct Seen {
    std::mutex mutex;
    std::vector<double> times;
    int flushes = 0;
};

class CollectingSink : public Sink {
public:
    explicit CollectingSink(std::shared_ptr<Seen> seen) : seen_(std::move(seen)) {}
    [[nodiscard]] std::string name() const override { return "collector"; }
    base::Status write(const SinkRow& row) override {
        const std::lock_guard lock(seen_->mutex);
        seen_->times.push_back(row.time);
        return base::ok();
    }
    base::Status flush() override {
        const std::lock_guard lock(seen_->mutex);
        ++seen_->flushes;
        return base::ok();
    }

private:
    std::shared_ptr<Seen> seen_;
};

class FailingSink : public Sink {
public:
    FailingSink(int good, std::shared_ptr<int> calls) : good_(good), calls_(std::move(calls)) {}
    [[nodiscard]] std::string name() const override { return "CSV full.csv"; }
    base::Status write(const SinkRow&) override {
        if (++*calls_ > good_) return base::Error{"the disk is full", "full.csv"};
        return base::ok();
    }

private:
    int good_;
    std::shared_ptr<int> calls_;
};

/// Stands still in write until it is let go.
class StuckSink : public Sink {
public:
    StuckSink(std::shared_future<void> go, std::promise<void>& entered) : go_(std::move(go)), entered_(&entered) {}
    [[nodiscard]] std::string name() const override { return "stuck"; }
    base::Status write(const SinkRow&) override {
        if (entered_ != nullptr) std::exchange(entered_, nullptr)->set_value();
        go_.wait();
        return base::ok();
    }

private:
    std::shared_future<void> go_;
    std::promise<void>* entered_;
};

template <class... Sinks>
std::vector<std::unique_ptr<Sink>> list_of(std::unique_ptr<Sinks>... sinks) {
    std::vector<std::unique_ptr<Sink>> list;
    (list.push_back(std::move(sinks)), ...);
    return list;
}

SinkRow row_at(double time) {
    SinkRow row;
    row.time = time;
    return row;
}

TEST(SinkThread, RowsArriveInOrderAndDrainFlushes) {
    const auto seen = std::make_shared<Seen>();
    SinkThread thread(list_of(std::make_unique<CollectingSink>(seen)));
    for (int i = 0; i < 1000; ++i) thread.post(row_at(i));
    thread.drain();
    {
        const std::lock_guard lock(seen->mutex);
        ASSERT_EQ(seen->times.size(), 1000u);
        for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen->times[static_cast<std::size_t>(i)], i);
        EXPECT_EQ(seen->flushes, 1);
    }
    EXPECT_EQ(thread.dropped(), 0u);
    EXPECT_TRUE(thread.failed().empty());
}

TEST(SinkThread, DestructorBringsOutWhatIsLeft) {
    const auto seen = std::make_shared<Seen>();
    {
        SinkThread thread(list_of(std::make_unique<CollectingSink>(seen)));
        for (int i = 0; i < 100; ++i) thread.post(row_at(i));
    }
    EXPECT_EQ(seen->times.size(), 100u);
    EXPECT_EQ(seen->flushes, 1);
}

TEST(SinkThread, FullQueueDropsAndCountsWithoutWaiting) {
    const auto seen = std::make_shared<Seen>();
    std::promise<void> go, entered;
    {
        SinkThread thread(
            list_of(std::make_unique<StuckSink>(go.get_future().share(), entered), std::make_unique<CollectingSink>(seen)), 3);
        thread.post(row_at(0));
        entered.get_future().wait();
        for (int i = 1; i < 10; ++i) thread.post(row_at(i));
        EXPECT_EQ(thread.dropped(), 7u);
        go.set_value();
        thread.drain();
        thread.post(row_at(10));
        thread.drain();
        EXPECT_EQ(thread.dropped(), 7u);
    }
    EXPECT_EQ(seen->times, (std::vector<double>{0, 1, 2, 10}));
}

TEST(SinkThread, FailingSinkIsNamedOnceAndLeftOutWhileOthersGoOn) {
    const test::CapturedLog log;
    const auto seen = std::make_shared<Seen>();
    const auto calls = std::make_shared<int>(0);
    {
        SinkThread thread(list_of(std::make_unique<FailingSink>(2, calls), std::make_unique<CollectingSink>(seen)));
        for (int i = 0; i < 50; ++i) thread.post(row_at(i));
        thread.drain();
        ASSERT_EQ(thread.failed().size(), 1u);
        EXPECT_EQ(thread.failed()[0], "CSV full.csv: full.csv: the disk is full");
    }
    EXPECT_EQ(*calls, 3);
    EXPECT_EQ(seen->times.size(), 50u);
    ASSERT_EQ(log.lines().size(), 1u);
    EXPECT_NE(log.text().find("CSV full.csv"), std::string::npos);
}

TEST(SinkThread, WithoutSinksNothingIsQueued) {
    SinkThread thread({}, 1);
    for (int i = 0; i < 100; ++i) thread.post(row_at(i));
    thread.drain();
    EXPECT_EQ(thread.dropped(), 0u);
}

TEST(SinkThread, ManyProducersAndDrainersLoseNothing) {
    const auto seen = std::make_shared<Seen>();
    {
        SinkThread thread(list_of(std::make_unique<CollectingSink>(seen)), 1u << 20);
        std::vector<std::thread> producers;
        for (int p = 0; p < 4; ++p)
            producers.emplace_back([&] {
                for (int i = 0; i < 500; ++i) {
                    thread.post(row_at(i));
                    if (i % 100 == 99) thread.drain();
                }
            });
        for (std::thread& producer : producers) producer.join();
        thread.drain();
        const std::lock_guard lock(seen->mutex);
        EXPECT_EQ(seen->times.size(), 2000u);
    }
}

TEST(RowKind, HasAName) {
    EXPECT_EQ(name_of(RowKind::kSample), "sample");
    EXPECT_EQ(name_of(RowKind::kComponents), "components");
}

}  // namespace
}  // namespace millrace::record
