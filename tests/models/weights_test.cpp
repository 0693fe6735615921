// Tensors between a store and a checkpoint: one read for each arena, and what earlier versions left out.

#include "models/weights.h"

#include <gtest/gtest.h>

#include "models/k1/node_statistics.h"
#include "models/language_rig.h"
#include "temporary_folder.h"

namespace millrace::models {
namespace {

using Arena = tape::Store::Arena;
using tape::ParameterId;

class CheckpointTensors : public ::testing::Test {
protected:
    /// A tree that has trained for a few steps.
    static void begin(testing::LanguageRig& rig, std::uint32_t steps = 3) {
        K1Config config;
        config.language = {23, 7, 16, 2, 24};
        config.tree = Tree::regular({2, 2});
        config.labels = {2};
        rig.members = 2;
        ASSERT_TRUE(rig.begin(std::make_unique<K1>(config), 4, {5, 6}).ok());
        for (std::uint32_t step = 0; step < steps; ++step) {
            rig.feed_random(step);
            rig.training->run();
        }
    }
    static std::vector<float> values(const io::TensorView& tensor) {
        const auto* const first = reinterpret_cast<const float*>(tensor.data);
        return {first, first + tensor.bytes / sizeof(float)};
    }
};

TEST_F(CheckpointTensors, EveryArenaIsReadOnce) {
    for (const auto& [device, precision] :
         {std::pair{ops::DeviceKind::ref, tape::Precision::f64}, std::pair{ops::DeviceKind::cpu, tape::Precision::f32}}) {
        testing::LanguageRig rig;
        rig.device = device;
        rig.precision = precision;
        begin(rig);
        WeightCopies before = copy_weights(*rig.store, 2);
        const float* const memory = before.values.front().data();
        rig.training->run();
        const WeightCopies copies = copy_weights(*rig.store, 3, {}, std::move(before.values));
        EXPECT_EQ(copies.values.size(), 4u) << "parameters, fixed ones, two moments";
        EXPECT_EQ(copies.values.front().data(), memory);
        for (int member = 0; member < 2; ++member) {
            const io::MemberTensors& tensors = copies.members[static_cast<std::size_t>(member)];
            std::size_t model = 0, optimizer = 0;
            for (std::size_t i = 0; i < rig.store->parameters().size(); ++i) {
                const tape::Parameter& p = rig.store->parameters()[i];
                const auto id = static_cast<ParameterId>(i);
                for (int group = 0; group < p.groups; ++group) {
                    const std::string& name = p.names[static_cast<std::size_t>(group)];
                    EXPECT_EQ(tensors.model[model].name, name);
                    EXPECT_EQ(values(tensors.model[model++]), rig.store->read_parameter(id, group, member)) << name;
                    if (p.fixed) continue;
                    for (const Arena arena : {Arena::first_moment, Arena::second_moment})
                        EXPECT_EQ(values(tensors.optimizer[optimizer++]), rig.store->read_parameter(id, group, member, arena))
                            << name;
                }
            }
            EXPECT_EQ(model, tensors.model.size());
            EXPECT_EQ(optimizer, tensors.optimizer.size());
        }
    }
}

TEST_F(CheckpointTensors, CountsThatACheckpointLacksBeginAtZero) {
    test::TemporaryFolder folder;
    auto store = io::CheckpointStore::open(folder.path());
    ASSERT_TRUE(store.ok());
    const auto saved = [&](std::uint64_t step, const std::string& left_out) {
        testing::LanguageRig rig;
        begin(rig);
        WeightCopies copies = copy_weights(*rig.store, 3);
        io::Checkpoint checkpoint;
        checkpoint.step = step;
        checkpoint.members = std::move(copies.members);
        for (io::MemberTensors& member : checkpoint.members)
            std::erase_if(member.model, [&](const io::TensorView& tensor) { return tensor.name.ends_with(left_out); });
        const auto report = store->save(checkpoint);
        EXPECT_TRUE(report.ok());
        auto loaded = io::load_checkpoint(report->folder);
        EXPECT_TRUE(loaded.ok());
        return std::move(loaded).value();
    };
    testing::LanguageRig rig;
    begin(rig, 0);
    const auto steps = [&] { return read_statistics(static_cast<const K1&>(*rig.model), *rig.store, 1)[0].steps(); };
    base::Status status = load_weights(*rig.store, saved(1, ".statistics"), true);
    ASSERT_TRUE(status.ok()) << status.error().text();
    EXPECT_EQ(steps(), 0);
    status = load_weights(*rig.store, saved(2, ".carries"), true);
    ASSERT_TRUE(status.ok()) << status.error().text();
    EXPECT_EQ(steps(), 3);
    status = load_weights(*rig.store, saved(3, ".linear1.bias"), true);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().text().find("missing nodes.0.linear1.bias"), std::string::npos) << status.error().text();
}

}  // namespace
}  // namespace millrace::models
