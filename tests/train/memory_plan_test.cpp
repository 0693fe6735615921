#include "train/memory_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "data/pairs/resident_pairs.h"
#include "models/energy_flow/energy_flow.h"
#include "ops/optimizer/optimizer.h"
#include "train/engine.h"
#include "train/setup.h"
#include "train/tiny_run.h"

namespace millrace::train {
namespace {

/// Rank 1 of three, beside rank 0 on its host, which has room for 64 MiB; the other host has none.
class RankOnAHost final : public comm::Group {
public:
    RankOnAHost() : Group(&kTable, {1, 3, 1, 2}, {"here", "here", "there"}) {}

private:
    static constexpr comm::MpiTable kTable = {
        .all_gather = [](int, const void* send, void* receive, std::size_t) -> const char* {
            const std::int64_t all[] = {std::int64_t{64} << 20, *static_cast<const std::int64_t*>(send), 0};
            std::ranges::copy(all, static_cast<std::int64_t*>(receive));
            return nullptr;
        },
        .close = []() -> const char* { return nullptr; },
    };
};

TEST(HostMemory, RanksOfAHostShareIt) {
    RankOnAHost group;
    ASSERT_TRUE(share_memory(group).ok());
    const auto share = host_memory_limit();
    comm::Group alone;
    ASSERT_TRUE(share_memory(alone).ok());
    ASSERT_TRUE(share.has_value());
    EXPECT_NE(share->owner.find("share of its host"), std::string::npos) << share->owner;
    EXPECT_NEAR(static_cast<double>(share->bytes), 32 << 20, 4 << 20);
    EXPECT_GT(host_memory_limit()->bytes, share->bytes) << "alone it has all";
}

using models::EnergyFlowConfig;
using models::Recompute;

/// Bytes that a backend was asked for.
struct Counts {
    std::int64_t allocated = 0, uploaded = 0, cleared = 0;
    std::vector<std::span<std::byte>> scratch = {};  ///< that programs were prepared with
};

constexpr std::size_t kScratch = 1280;  ///< that a program is said to need
constexpr std::size_t kWorking = 3840;  ///< the most of it that programs share, in common and of their workers

/// The CPU's backend, counting what it is asked for.
class CountingBackend final : public ops::Backend {
public:
    explicit CountingBackend(Counts& counts) : counts_(counts) {
        auto made = ops::make_backend(ops::DeviceKind::cpu, {});
        EXPECT_TRUE(made.ok());
        inner_ = std::move(made).value();
    }
    [[nodiscard]] ops::DeviceKind kind() const override { return inner_->kind(); }
    [[nodiscard]] std::string description() const override { return inner_->description(); }
    base::Result<std::unique_ptr<ops::Memory>> allocate(std::size_t bytes) override {
        counts_.allocated += static_cast<std::int64_t>(bytes);
        return inner_->allocate(bytes);
    }
    base::Result<std::unique_ptr<ops::Memory>> allocate_shared(std::size_t bytes) override {
        counts_.allocated += static_cast<std::int64_t>(bytes);
        return inner_->allocate_shared(bytes);
    }
    void upload(std::byte* device, const void* host, std::size_t bytes) override {
        counts_.uploaded += static_cast<std::int64_t>(bytes);
        inner_->upload(device, host, bytes);
    }
    void clear(std::byte* device, std::size_t bytes) override {
        counts_.cleared += static_cast<std::int64_t>(bytes);
        inner_->clear(device, bytes);
    }
    void download(void* host, const std::byte* device, std::size_t bytes) override { inner_->download(host, device, bytes); }
    base::Result<std::unique_ptr<ops::Uploader>> make_uploader() override { return inner_->make_uploader(); }
    void synchronize() override { inner_->synchronize(); }
    base::Status check() override { return inner_->check(); }
    base::Result<std::vector<std::unique_ptr<ops::Kernel>>> prepare(std::span<const ops::Bound> records,
                                                                    std::span<const ops::Section> sections,
                                                                    std::span<std::byte> scratch) override {
        counts_.scratch.push_back(scratch);
        return inner_->prepare(records, sections, scratch);
    }
    std::size_t measure_scratch(std::span<const ops::Bound> records, std::span<const ops::Section>) override {
        for (const ops::Bound& bound : records)
            for (int slot = 0; slot < bound.record->slot_count(); ++slot)
                EXPECT_EQ(bound[slot].present(), bound.record->slots[static_cast<std::size_t>(slot)].present());
        return kScratch;
    }
    ops::WorkingMemory measure_shared(std::span<const ops::Bound>) override {
        return ++measured_ % 2 == 0 ? ops::WorkingMemory{kWorking, 1} : ops::WorkingMemory{1, kWorking};
    }

private:
    std::unique_ptr<ops::Backend> inner_;
    int measured_ = 0;
    Counts& counts_;
};

EnergyFlowConfig small_flow() {
    EnergyFlowConfig c;
    c.width = 7;
    c.height = 5;
    c.depth = 9;
    c.hidden = 26;
    c.embedding = 11;
    c.noise = 0;
    return c;
}

std::shared_ptr<const data::PairSet> pairs(std::uint32_t count, std::int32_t width) {
    auto set = std::make_shared<data::PairSet>();
    set->name = "waves";
    set->count = count;
    set->dimensions = static_cast<std::uint32_t>(width);
    for (std::vector<float>* rows : {&set->inputs, &set->targets})
        for (std::size_t i = 0; i < std::size_t{count} * set->dimensions; ++i)
            rows->push_back(std::sin(1.3f * static_cast<float>(i) + (rows == &set->inputs ? 0.1f : 0.7f)));
    for (std::uint32_t i = 0; i < count; ++i)
        (i < 5 ? set->part(data::Part::validation) : set->part(data::Part::train)).push_back(static_cast<std::int32_t>(i));
    return set;
}

struct Made : Counts {
    base::Result<std::unique_ptr<Engine>> engine = base::Error{"not made"};
};

constexpr std::uint32_t kPairs = 5 + 31;  // two batches of 12 and a last step of 7

/// An engine on the CPU with batches of 12.
std::unique_ptr<Made> make(const EnergyFlowConfig& config, std::int64_t limit, std::int32_t micro_batch = 0,
                           std::int32_t eval_batch = 3, bool training = true) {
    RunSettings settings;
    settings.model = "energy_flow";
    settings.batch = 12;
    settings.micro_batch = micro_batch;
    settings.memory_limit = limit;
    settings.eval_batch = eval_batch;
    settings.seeds = {42};
    settings.optimizer.kind = ops::OptimizerKind::sgd;
    settings.optimizer.lr = {0.1};
    EngineOptions options;
    options.training = training;
    options.ring_capacity = 64;
    const auto set = pairs(kPairs, config.embedding);
    auto made = std::make_unique<Made>();
    made->engine = Engine::create(std::make_unique<CountingBackend>(*made), std::make_unique<models::EnergyFlow>(config),
                                  std::make_unique<data::PairSource>(set), settings, options);
    return made;
}

std::int64_t needs(const EnergyFlowConfig& config, std::int32_t micro_batch, std::int32_t eval_batch = 3) {
    const auto made = make(config, 0, micro_batch, eval_batch);
    EXPECT_TRUE(made->engine.ok()) << made->engine.error().text();
    return (*made->engine)->memory_needs().total();
}

/// The parameters after an epoch.
std::vector<float> trained(Engine& engine) {
    for (std::int32_t i = 0; i < engine.epoch().count(); ++i) engine.launch_step(static_cast<std::uint64_t>(i));
    engine.backend().synchronize();
    std::vector<float> values;
    for (std::size_t id = 0; id < engine.store().parameters().size(); ++id) {
        const auto part = engine.store().read_parameter(static_cast<tape::ParameterId>(id), 0, 0);
        values.insert(values.end(), part.begin(), part.end());
    }
    return values;
}

TEST(MemoryPlan, PredictsWhatIsAllocated) {
    for (const Recompute recompute : {Recompute::none, Recompute::gates, Recompute::step}) {
        EnergyFlowConfig config = small_flow();
        config.recompute = recompute;
        const auto made = make(config, 0);
        ASSERT_TRUE(made->engine.ok()) << made->engine.error().text();
        Engine& engine = **made->engine;
        EXPECT_GT(made->allocated, 0);
        EXPECT_NEAR(static_cast<double>(engine.memory_needs().total()), static_cast<double>(made->allocated),
                    0.05 * static_cast<double>(made->allocated))
            << name_of(recompute);
        EXPECT_EQ(engine.memory_used(), made->allocated);
        EXPECT_EQ(engine.micro_batch(), 12);
        EXPECT_NE(engine.memory_text().find("total"), std::string::npos) << engine.memory_text();
        EXPECT_EQ(engine.memory_text().find("micro-batch"), std::string::npos) << engine.memory_text();
    }
}

TEST(MemoryPlan, EveryProgramHasItsScratchInTheArena) {
    const auto made = make(small_flow(), 0);
    ASSERT_TRUE(made->engine.ok()) << made->engine.error().text();
    const MemoryNeeds& needs = (*made->engine)->memory_needs();
    ASSERT_GE(made->scratch.size(), 3u);  // two steps and an evaluation
    EXPECT_EQ(needs.scratch, static_cast<std::int64_t>(made->scratch.size() * kScratch + 2 * kWorking))
        << "one program needs most in common, another of its workers: both are held";
    EXPECT_NE(needs.text().find("scratch"), std::string::npos) << needs.text();
    std::ranges::sort(made->scratch, {}, [](const auto& one) { return one.data(); });
    for (std::size_t i = 0; i < made->scratch.size(); ++i) {
        EXPECT_EQ(made->scratch[i].size(), kScratch);
        if (i > 0) {
            EXPECT_GE(made->scratch[i].data(), made->scratch[i - 1].data() + kScratch);
        }
    }
}

TEST(MemoryPlan, GradientsAndMomentsAreClearedWhereTheyLie) {
    const auto made = make(small_flow(), 0);
    ASSERT_TRUE(made->engine.ok()) << made->engine.error().text();
    const MemoryNeeds& needs = (*made->engine)->memory_needs();
    ASSERT_GT(needs.gradients + needs.optimizer, needs.parameters);
    EXPECT_GE(made->cleared, needs.gradients + needs.optimizer);
    EXPECT_LT(made->uploaded, needs.data + 2 * needs.parameters) << "zeros need no copy from the host";
}

TEST(MemoryPlan, TakesTheLargestMicroBatchThatFits) {
    const EnergyFlowConfig config = small_flow();
    std::int64_t before = needs(config, 12);
    for (const std::int32_t rows : {6, 4, 3, 2, 1}) {
        const std::int64_t bytes = needs(config, rows);
        EXPECT_LT(bytes, before);
        const auto made = make(config, before - 1);
        ASSERT_TRUE(made->engine.ok()) << made->engine.error().text();
        EXPECT_EQ((*made->engine)->micro_batch(), rows);
        EXPECT_EQ((*made->engine)->epoch().step, (StepRows{rows, 12 / rows, 0}));
        EXPECT_NE((*made->engine)->memory_text().find("micro-batches of " + std::to_string(rows)), std::string::npos);
        before = bytes;
    }
}

TEST(MemoryPlan, MicroBatchesTrainAsAWholeBatchDoes) {
    const EnergyFlowConfig config = small_flow();
    const auto whole = make(config, 0);
    ASSERT_TRUE(whole->engine.ok()) << whole->engine.error().text();
    const std::vector<float> wanted = trained(**whole->engine);
    for (const std::int32_t rows : {6, 4, 1}) {
        const auto split = make(config, 0, rows);
        ASSERT_TRUE(split->engine.ok()) << split->engine.error().text();
        EXPECT_EQ((*split->engine)->epoch().count(), (*whole->engine)->epoch().count());
        const std::vector<float> found = trained(**split->engine);
        ASSERT_EQ(found.size(), wanted.size());
        double difference = 0, norm = 0;
        for (std::size_t i = 0; i < found.size(); ++i) {
            difference += std::pow(static_cast<double>(found[i]) - static_cast<double>(wanted[i]), 2);
            norm += std::pow(static_cast<double>(wanted[i]), 2);
        }
        EXPECT_LT(std::sqrt(difference / norm), 1e-6) << rows;
    }
}

TEST(MemoryPlan, FlowsThatKnowOfEachOtherAreNotSplitUnasked) {
    for (const char* key : {"model.headroom", "model.early_stop"}) {
        EnergyFlowConfig config = small_flow();
        if (std::string(key) == "model.headroom")
            config.headroom = 0.5;
        else
            config.early_stop = true;
        const std::int64_t less = needs(config, 12) - 1;
        const auto refused = make(config, less);
        ASSERT_FALSE(refused->engine.ok()) << key;
        EXPECT_EQ(refused->engine.error().exit_status, 2);
        EXPECT_EQ(refused->allocated, 0);
        for (const char* part : {"not split unasked", key, "train.batch", "train.micro_batch = 6 ("})
            EXPECT_NE(refused->engine.error().text().find(part), std::string::npos) << refused->engine.error().text();
        EXPECT_TRUE(make(config, less, 6)->engine.ok()) << "it was asked for";
    }
}

TEST(MemoryPlan, RefusesWithTheSettingsThatFitAndAllocatesNothing) {
    EnergyFlowConfig config = small_flow();
    config.recompute = Recompute::gates;
    const std::int64_t gates = needs(config, 12);
    config.recompute = Recompute::none;
    const auto refused = make(config, gates, 12);
    ASSERT_FALSE(refused->engine.ok());
    const base::Error& error = refused->engine.error();
    EXPECT_EQ(error.exit_status, 2);
    EXPECT_EQ(refused->allocated, 0);
    for (const char* part : {"does not fit", "activations", "train.memory allows", "train.micro_batch = 6",
                             "model.recompute = \"gates\" and train.micro_batch = 12"})
        EXPECT_NE(error.text().find(part), std::string::npos) << part << " in: " << error.text();

    const auto hopeless = make(config, 1000);
    ASSERT_FALSE(hopeless->engine.ok());
    EXPECT_EQ(hopeless->allocated, 0);
    EXPECT_EQ(hopeless->engine.error().exit_status, 2);
}

TEST(MemoryPlan, EvaluatesFewerRowsAtOnceWhenMoreDoNotFit) {
    EnergyFlowConfig config = small_flow();
    config.steps = 2;
    const auto whole = make(config, 0, 0, 5, false);
    ASSERT_TRUE(whole->engine.ok());
    const auto parts = make(config, (*whole->engine)->memory_needs().total() - 1, 0, 5, false);
    ASSERT_TRUE(parts->engine.ok());
    EXPECT_EQ((*whole->engine)->eval_batch(), 5);
    EXPECT_EQ((*parts->engine)->eval_batch(), 3);
    const auto wanted = (*whole->engine)->evaluate(data::Part::validation);
    const auto found = (*parts->engine)->evaluate(data::Part::validation);
    ASSERT_TRUE(wanted.ok() && found.ok());
    EXPECT_NEAR((*found)[0].loss, (*wanted)[0].loss, 1e-6);
}

TEST(MemoryPlan, NamesTheLeastWhenNothingFits) {
    MemoryNeeds needs;
    needs.activations = 3 << 20;
    const MemoryLimit limit{1 << 20, "the GPU has"};
    EXPECT_EQ(
        refuse_plan(needs, limit, {{"train.micro_batch = 2", 5 << 19}, {"train.micro_batch = 1", 2 << 20}}).text(),
        "the plan does not fit: it needs 3.0 MiB (data 0 B, parameters 0 B, activations 3.0 MiB, total 3.0 MiB), the GPU has "
        "1.0 MiB; even train.micro_batch = 1 needs 2.0 MiB, so the model must be smaller");
}

TEST(MemoryPlan, LimitIsTheMachinesUnlessGiven) {
    Counts ignored;
    const CountingBackend backend(ignored);
    const auto given = memory_limit(123, backend), machine = memory_limit(0, backend);
    ASSERT_TRUE(given && machine);
    EXPECT_EQ(given->bytes, 123);
    EXPECT_GT(machine->bytes, 1 << 20);
}

/// Ends the process, with 0 where a limit of its address space narrows the machine's.
[[noreturn]] void limit_address_space() {
    constexpr rlim_t kBound = rlim_t{1} << 30;
    const rlimit bound{kBound, kBound};
    setrlimit(RLIMIT_AS, &bound);
    const auto limit = host_memory_limit();
    const bool narrowed = limit && limit->bytes < static_cast<std::int64_t>(kBound) && limit->owner.starts_with("ulimit -v");
    std::_Exit(narrowed && resident_bytes() > 1 << 20 ? 0 : 1);
}

TEST(MemoryPlan, LimitOfTheAddressSpaceNarrowsTheMachines) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(limit_address_space(), ::testing::ExitedWithCode(0), "");
}

TEST(MemoryPlan, CheckpointsOfManyMembersAreReadAsAWhole) {
    constexpr std::int64_t kEach = 1000;
    EXPECT_EQ(passing_bytes(128, 128 * kEach), passing_bytes(1, kEach));
    EXPECT_EQ(passing_bytes(130, 130 * kEach), passing_bytes(1, kEach) + 2 * kEach);
    EXPECT_EQ(passing_bytes(1, std::int64_t{1} << 40), passing_bytes(1, std::int64_t{1} << 30)) << "windows, not copies";
}

}  // namespace
}  // namespace millrace::train
