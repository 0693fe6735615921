#include "train/lanes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "data/recording_files.h"
#include "io/hdf5.h"
#include "ops/backend.h"
#include "tape/slices.h"
#include "train/hooked_source.h"
#include "train/resume.h"
#include "train/setup.h"
#include "train/tiny_run.h"

namespace millrace::train {
namespace {

using Scores = std::vector<std::optional<LaneScore>>;

class LanesRun : public TinyRun {
protected:
    /// Of a small model unless `settings` name another.
    base::Recipe recipe(std::vector<std::string> settings) const { return TinyRun::recipe(small(std::move(settings))); }
    base::Result<RunResult> run(const std::string& name, std::vector<std::string> settings) {
        return TinyRun::run(name, small(std::move(settings)));
    }
    static std::vector<std::string> small(std::vector<std::string> settings) {
        if (settings.empty() || !settings.front().starts_with("model.name="))
            settings.insert(settings.begin(),
                            {"model.expert_hidden=32,16", "model.analyst_hidden=16,16", "telemetry.interval=0s"});
        return settings;
    }
    /// Recipes of trials share `settings` with the lanes.
    std::unique_ptr<Lanes> lanes(int count, const std::vector<std::string>& settings = {}) {
        auto made = Lanes::create(recipe(settings), count);
        EXPECT_TRUE(made.ok()) << made.error().text();
        return std::move(made).value();
    }
    static Scores epoch(Lanes& lanes) {
        auto scores = lanes.run_epoch();
        EXPECT_TRUE(scores.ok()) << scores.error().text();
        return std::move(scores).value();
    }
    static std::vector<std::byte> bits(Lanes& lanes, int lane) {
        auto slice = lanes.save(lane);
        EXPECT_TRUE(slice.ok()) << slice.error().text();
        return std::move(slice).value().bytes;
    }
    /// The last checkpoint of a run of one member, as a slice has it.
    std::vector<std::byte> saved_by(const std::string& name, const base::Recipe& of) {
        auto setup = set_up(of, true);
        auto standing = stand_of(folder_ / name, of);
        EXPECT_TRUE(setup.ok() && standing.ok());
        const base::Status restored = restore(*setup->engine, setup->settings, standing->state, *standing->checkpoint);
        EXPECT_TRUE(restored.ok()) << restored.error().text();
        groups_ = setup->engine->store().groups().size();
        const tape::MemberSlices slices(setup->engine->store());
        std::vector<std::byte> bytes(slices.bytes());
        slices.read(0, bytes.data());
        return bytes;
    }
    /// Parameters, moments and statistics: what stands in a member's part of a slice before its groups and its state, which hold
    /// values of the newest step, too.
    std::string weights(const std::vector<std::byte>& slice, std::size_t member_bytes) const {
        const auto behind =
            static_cast<std::size_t>(tape::align(sizeof(ops::MemberState), 64) +
                                     tape::align(static_cast<std::int64_t>(groups_ * sizeof(ops::GroupState)), 64));
        return {reinterpret_cast<const char*>(slice.data() + slice.size() - member_bytes), member_bytes - behind};
    }
    std::size_t groups_ = 2;  ///< weights and running statistics

    static ops::MemberState state(const std::vector<std::byte>& slice) {
        ops::MemberState state;
        std::memcpy(&state, slice.data() + slice.size() - tape::align(sizeof state, 64), sizeof state);
        return state;
    }
};

std::vector<std::string> with(std::vector<std::string> settings, const std::vector<std::string>& more) {
    settings.insert(settings.end(), more.begin(), more.end());
    return settings;
}

class LanesAlone : public LanesRun, public ::testing::WithParamInterface<std::vector<std::string>> {};

TEST_P(LanesAlone, ATrialThatLeavesAndReturnsEqualsARunOfItsOwn) {
    const std::vector<std::string>& shape = GetParam();
    if (!shape.empty() && shape.front() == "device=cuda")
        if (const auto there = ops::cuda_available(); !there.ok()) GTEST_SKIP() << there.error().text();
    const std::vector<std::string> own =
        with(shape, {"seed=5", "optim.lr=0.003", "optim.schedule=cosine", "train.epochs=3", "optim.weight_decay=0.01",
                     "optim.clip_norm=2", "optim.beta2=0.99", "train.dropout_scale=1.5"});
    ASSERT_TRUE(run("alone", own).ok());

    const auto table = lanes(4, shape);
    ASSERT_TRUE(table->fill(0, recipe(with(shape, {"seed=9"}))).ok());
    epoch(*table);  // the others are ahead of the trial from now on
    ASSERT_TRUE(table->fill(1, recipe(own)).ok());
    ASSERT_TRUE(table->fill(2, recipe(with(shape, {"optim.lr=1e30", "seed=3"}))).ok());
    const std::uint64_t captures = table->captures();
    std::vector<LaneScore> course;
    const Scores first = epoch(*table);
    EXPECT_FALSE(first[3]);
    EXPECT_TRUE(first[2]->diverged);
    EXPECT_EQ(first[0]->epoch, 2u);
    course.push_back(*first[1]);
    auto slice = table->save(1);
    ASSERT_TRUE(slice.ok());
    ASSERT_TRUE(table->fill(1, recipe(with(shape, {"seed=77"}))).ok());
    epoch(*table);
    ASSERT_TRUE(table->restore(3, *slice).ok());
    for (int i = 0; i < 2; ++i) course.push_back(*epoch(*table)[3]);
    EXPECT_EQ(table->captures(), captures);

    ASSERT_EQ(observer_.epochs.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(course[i].epoch, i + 1);
        EXPECT_FALSE(course[i].diverged);
        EXPECT_EQ(course[i].metrics.at("train_loss"), observer_.epochs[i].training[0].loss) << i;
        EXPECT_EQ(course[i].metrics.at("validation_loss"), observer_.epochs[i].validation[0].loss) << i;
        EXPECT_EQ(course[i].metrics.at("validation_accuracy"), observer_.epochs[i].validation[0].accuracy) << i;
    }
    const std::vector<std::byte> end = bits(*table, 3);
    const std::vector<std::byte> alone = saved_by("alone", recipe(own));
    EXPECT_TRUE(weights(end, alone.size()) == weights(alone, alone.size()));
    const ops::MemberState left = state(end), right = state(alone);
    EXPECT_EQ(
        std::tuple(left.seed, left.step, left.epoch, left.position, left.applied, left.skipped, left.loss_scale, left.good_steps),
        std::tuple(right.seed, right.step, right.epoch, right.position, right.applied, right.skipped, right.loss_scale,
                   right.good_steps));
    const auto tested = table->test();
    ASSERT_TRUE(tested.ok()) << tested.error().text();
    EXPECT_TRUE(tested.value()[3]->metrics.contains("test_accuracy"));
}

INSTANTIATE_TEST_SUITE_P(Shapes, LanesAlone,
                         ::testing::Values(std::vector<std::string>{},
                                           std::vector<std::string>{"optim.name=sgd", "train.accumulate=2", "train.batch=32",
                                                                    "data.augment=true", "optim.decay_biases=false"},
                                           std::vector<std::string>{"train.class_weights=balanced"},
                                           std::vector<std::string>{"device=cuda", "deterministic=true", "precision=bf16"},
                                           std::vector<std::string>{"device=cuda", "deterministic=true", "precision=f16"},
                                           std::vector<std::string>{"device=cuda", "deterministic=true", "precision=f32"}));

TEST_F(LanesRun, ATrialWithOtherClassWeightsNeedsLanesOfItsOwn) {
    const auto table = lanes(2);
    const base::Recipe other = recipe({"train.class_weights=balanced"});
    const base::Status refused = table->fill(0, other);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("train.class_weights"), std::string::npos) << refused.error().text();
}

TEST_F(LanesRun, AFilledLaneHasNoTraceOfTheTrialBefore) {
    const auto table = lanes(3);
    ASSERT_TRUE(table->fill(0, recipe({"seed=5"})).ok());
    ASSERT_TRUE(table->fill(1, recipe({"seed=6", "optim.lr=1e30"})).ok());
    for (int i = 0; i < 2; ++i) epoch(*table);
    for (int lane = 0; lane < 3; ++lane) ASSERT_TRUE(table->fill(lane, recipe({"seed=8"})).ok());
    const std::vector<std::byte> start = bits(*table, 2);
    EXPECT_EQ(bits(*table, 0), start);
    EXPECT_EQ(bits(*table, 1), start);
    const Scores scores = epoch(*table);
    EXPECT_EQ(scores[0]->metrics, scores[1]->metrics);
    EXPECT_EQ(scores[0]->metrics, scores[2]->metrics);
    EXPECT_EQ(bits(*table, 0), bits(*table, 1));
    EXPECT_EQ(bits(*table, 0), bits(*table, 2));
    EXPECT_NE(bits(*table, 0), start);
}

TEST_F(LanesRun, MetricsAreNamedBeforeTheFirstEpochWithoutAnEffectOnIt) {
    const auto asked = lanes(2), plain = lanes(2);
    EXPECT_TRUE(asked->metrics().value().empty()) << "of empty lanes";
    for (Lanes* each : {asked.get(), plain.get()}) ASSERT_TRUE(each->fill(1, recipe({"seed=3"})).ok());
    const auto names = asked->metrics();
    ASSERT_TRUE(names.ok()) << names.error().text();
    const Scores scores = epoch(*asked);
    std::vector<std::string> measured;
    for (const auto& [name, value] : scores[1]->metrics) measured.push_back(name);
    std::vector<std::string> sorted = *names;
    std::ranges::sort(sorted);
    EXPECT_EQ(sorted, measured);
    epoch(*plain);
    EXPECT_TRUE(bits(*asked, 1) == bits(*plain, 1));
}

TEST_F(LanesRun, ANeighbourThatDivergesChangesNoBit) {
    const auto table = lanes(2);
    std::vector<std::vector<std::byte>> ends;
    for (const char* neighbour : {"optim.lr=0.001", "optim.lr=1e30"}) {
        ASSERT_TRUE(table->fill(0, recipe({"seed=5"})).ok());
        ASSERT_TRUE(table->fill(1, recipe({neighbour})).ok());
        for (int i = 0; i < 2; ++i) EXPECT_FALSE(epoch(*table)[0]->diverged);
        ends.push_back(bits(*table, 0));
    }
    EXPECT_TRUE(epoch(*table)[1]->diverged);
    EXPECT_EQ(ends[0], ends[1]);
}

TEST_F(LanesRun, AnEmptyLaneKeepsItsWeightsAndHasNoScore) {
    const auto table = lanes(2);
    ASSERT_TRUE(table->fill(0, recipe({})).ok());
    ASSERT_TRUE(table->fill(1, recipe({"seed=2"})).ok());
    table->clear(1);
    const Scores scores = epoch(*table);
    EXPECT_TRUE(scores[0]);
    EXPECT_FALSE(scores[1]);
    const auto nothing = table->save(1);
    ASSERT_FALSE(nothing.ok());
    EXPECT_NE(nothing.error().text().find("lane 1 carries no trial"), std::string::npos);
    table->clear(0);
    const Scores none = epoch(*table);
    EXPECT_EQ(none.size(), 2u);
    EXPECT_FALSE(none[0]);
}

TEST_F(LanesRun, ACopyHasTheWeightsAndKeepsItsOwnSettings) {
    const auto table = lanes(3);
    ASSERT_TRUE(table->fill(0, recipe({"seed=5", "optim.lr=0.002"})).ok());
    ASSERT_TRUE(table->fill(1, recipe({"seed=5", "optim.lr=0.004"})).ok());
    epoch(*table);
    const double better = epoch(*table)[0]->metrics.at("validation_loss");
    const auto target = bits(*table, 1);
    ASSERT_TRUE(table->copy(0, 1).ok());
    EXPECT_NE(bits(*table, 1), target);
    // With the source's recipe the copy goes on as the source does.
    ASSERT_TRUE(table->set(1, recipe({"seed=5", "optim.lr=0.002"})).ok());
    const auto from = bits(*table, 0), to = bits(*table, 1);
    std::uint64_t member = 0;  // bytes, by the fourth word of a slice
    std::memcpy(&member, from.data() + 24, sizeof member);
    ASSERT_GT(member, 100'000u);
    EXPECT_TRUE(weights(from, member) == weights(to, member));
    const Scores next = epoch(*table);
    EXPECT_EQ(next[0]->metrics, next[1]->metrics);
    EXPECT_NE(next[0]->metrics.at("validation_loss"), better);
    EXPECT_EQ(next[1]->epoch, 3u);
    // New hyper-parameters change the course, not the weights.
    ASSERT_TRUE(table->set(1, recipe({"seed=5", "optim.lr=0"})).ok());
    EXPECT_NE(epoch(*table)[1]->metrics.at("train_loss"), next[1]->metrics.at("train_loss"));
    EXPECT_NE(bits(*table, 0), bits(*table, 1));
}

TEST_F(LanesRun, ValuesOfAModelAreALanesOwn) {
    if (!io::have_hdf5()) GTEST_SKIP() << "built without HDF5";
    data::testing::RecordingFileSpec spec;
    spec.labels = data::testing::mixed_labels(59);
    spec.width = 8;
    spec.statistics = false;
    data::testing::write_recording_folder(folder_ / "recordings", spec, 11, 7);
    const std::vector<std::string> shape{"model.name=leak_cnn",
                                         "model.preset=debug",
                                         "train.batch=32",
                                         "optim.lr=0.01",
                                         "data.path=" + (folder_ / "recordings").string(),
                                         "telemetry.interval=0s"},
        first = with(shape, {"model.auxiliary=0", "model.boost=3"}), second = with(shape, {"model.auxiliary=2"});
    ASSERT_TRUE(run("first", first).ok());
    ASSERT_TRUE(run("second", second).ok());
    const auto table = lanes(3, shape);
    ASSERT_TRUE(table->fill(2, recipe(first)).ok());
    ASSERT_TRUE(table->fill(0, recipe(second)).ok());
    for (std::size_t i = 0; i < 2; ++i) {
        const Scores scores = epoch(*table);
        for (const auto& [lane, alone] : {std::pair{2u, i}, std::pair{0u, i + 2}}) {
            const EpochReport& report = observer_.epochs.at(alone);
            EXPECT_EQ(scores[lane]->metrics.at("train_loss"), report.training[0].loss);
            EXPECT_FALSE(report.validation[0].more.figures.empty());
            for (const models::Figure& figure : report.validation[0].more.figures)
                EXPECT_EQ(scores[lane]->metrics.at(figure.name), figure.value) << figure.name << " of lane " << lane;
        }
    }
    // A copy keeps its own losses; with the settings of its source it goes on like that.
    ASSERT_TRUE(table->copy(2, 0).ok());
    const Scores apart = epoch(*table);
    EXPECT_NE(apart[0]->metrics.at("train_loss"), apart[2]->metrics.at("train_loss"));
    ASSERT_TRUE(table->copy(2, 0).ok());
    ASSERT_TRUE(table->set(0, recipe(first)).ok());
    const Scores together = epoch(*table);
    EXPECT_EQ(together[0]->metrics, together[2]->metrics);

    const auto streamed = Lanes::create(recipe(with(shape, {"data.mode=stream", "data.window=4KiB"})), 2);
    ASSERT_FALSE(streamed.ok());
    EXPECT_NE(streamed.error().text().find("streamed"), std::string::npos) << streamed.error().text();
}

TEST_F(LanesRun, StoppedWithinAnEpochALaneMustBeFilledAgain) {
    std::atomic<int> stop{0};
    std::uint64_t steps = 0, stop_at = 16;  // of seven in an epoch
    auto made = Lanes::create(recipe({}), 2, [&](std::unique_ptr<data::BatchSource> inner) {
        return std::make_unique<HookedSource>(std::move(inner), [&](std::uint64_t step) {
            steps = step + 1;
            if (steps == stop_at) stop = 15;
        });
    });
    ASSERT_TRUE(made.ok()) << made.error().text();
    Lanes& table = **made;
    ASSERT_TRUE(table.fill(0, recipe({"seed=5"})).ok());
    epoch(table);
    const auto slice = table.save(0);
    const Scores next = epoch(table);
    const auto stopped = table.run_epoch(&stop);
    ASSERT_TRUE(stopped.ok());
    EXPECT_TRUE(stopped->empty());
    EXPECT_EQ(steps, stop_at);
    stop = 0;
    for (const auto& refused :
         {table.save(0).ok(), table.run_epoch().ok(), table.test().ok(), table.copy(0, 0).ok(), table.set(0, recipe({})).ok()})
        EXPECT_FALSE(refused);
    ASSERT_TRUE(table.restore(0, *slice).ok());
    EXPECT_EQ(epoch(table)[0]->metrics.at("train_loss"), next[0]->metrics.at("train_loss"));
    // Before the first step nothing is lost.
    stop = 15;
    EXPECT_TRUE(table.run_epoch(&stop)->empty());
    EXPECT_TRUE(table.save(0).ok());
}

TEST_F(LanesRun, RefusesWhatALaneCannotTake) {
    const auto table = lanes(2);
    const auto refused = [&](const base::Status& status, const char* what) {
        ASSERT_FALSE(status.ok()) << what;
        EXPECT_NE(status.error().text().find(what), std::string::npos) << status.error().text();
        EXPECT_EQ(status.error().exit_status, 2);
    };
    refused(table->fill(0, recipe({"train.batch=32"})), "train.batch");
    refused(table->fill(0, recipe({"model.n_total=12"})), "model.n_total");
    refused(table->fill(0, recipe({"optim.name=sgd"})), "optim.name");
    refused(table->fill(0, recipe({"members=2"})), "members");
    refused(table->fill(0, recipe({"optim.warmup_steps=2", "optim.warmup_epochs=1"})), "warmup");
    refused(table->fill(2, recipe({})), "no lane 2");
    refused(table->copy(0, 1), "lane 0 carries no trial");
    EXPECT_FALSE(epoch(*table)[0]);
    ASSERT_TRUE(table->fill(0, recipe({})).ok());
    LaneSlice slice = table->save(0).value();
    slice.bytes.pop_back();
    refused(table->restore(1, slice), "not all of one");
    refused(table->restore(1, {}), "no slice");
    const auto other = lanes(1, {"train.batch=32"});
    refused(other->restore(0, table->save(0).value()), "train.batch");
    for (const char* bad : {"train.steps=5", "members=3", "train.debug_nonfinite=true"}) {
        const auto made = Lanes::create(recipe({bad}), 2);
        ASSERT_FALSE(made.ok()) << bad;
        EXPECT_EQ(made.error().exit_status, 2);
    }
    EXPECT_FALSE(Lanes::create(recipe({}), 0).ok());
}

TEST_F(LanesRun, StructuresDifferByWhatNoLaneTakes) {
    const std::vector<std::string> keys = Lanes::fusible_keys(recipe({}));
    for (const char* key : {"optim.lr", "optim.weight_decay", "optim.beta1", "optim.eps", "optim.clip_norm", "optim.schedule",
                            "optim.warmup_epochs", "seed", "train.epochs", "train.dropout_scale"})
        EXPECT_TRUE(std::ranges::count(keys, key) == 1) << key;
    for (const char* key : {"train.batch", "optim.name", "precision", "members", "model.n_total"})
        EXPECT_EQ(std::ranges::count(keys, key), 0) << key;
    const std::string usual = Lanes::structure(recipe({}));
    EXPECT_EQ(Lanes::structure(recipe({"optim.lr=0.5", "seed=1", "train.epochs=9", "optim.schedule=step"})), usual);
    EXPECT_NE(Lanes::structure(recipe({"train.batch=32"})), usual);
    EXPECT_NE(Lanes::structure(recipe({"optim.name=sgd"})), usual);
    // Without momentum there is no arena for it.
    EXPECT_NE(Lanes::structure(recipe({"optim.name=sgd"})), Lanes::structure(recipe({"optim.name=sgd", "optim.momentum=0"})));
}

}  // namespace
}  // namespace millrace::train
