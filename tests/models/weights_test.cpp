// Tensors between a store and a checkpoint: read when they are written, and what earlier versions left out.

#include "models/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "data/text/tokenizer.h"
#include "models/k1/node_report.h"
#include "models/language_model.h"
#include "models/language_rig.h"
#include "temporary_folder.h"

namespace millrace::models {
namespace {

using Arena = tape::Store::Arena;
using tape::ParameterId;

struct Kept final : io::ByteSink {
    std::vector<std::byte> bytes;
    base::Status write(io::Bytes more) override {
        bytes.insert(bytes.end(), more.begin(), more.end());
        return base::ok();
    }
};

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
        Kept kept;
        EXPECT_TRUE(tensor.pour(kept).ok());
        EXPECT_EQ(kept.bytes.size(), tensor.bytes);
        std::vector<float> values(kept.bytes.size() / sizeof(float));
        std::memcpy(values.data(), kept.bytes.data(), kept.bytes.size());
        return values;
    }
};

TEST_F(CheckpointTensors, ValuesAreReadWhenTheyAreWritten) {
    for (const auto& [device, precision] :
         {std::pair{ops::DeviceKind::ref, tape::Precision::f64}, std::pair{ops::DeviceKind::cpu, tape::Precision::f32}}) {
        testing::LanguageRig rig;
        rig.device = device;
        rig.precision = precision;
        begin(rig);
        const std::vector<io::MemberTensors> members = stored_tensors(*rig.store, 2);
        rig.training->run();
        for (int member = 0; member < 2; ++member) {
            const io::MemberTensors& tensors = members[static_cast<std::size_t>(member)];
            std::size_t model = 0, optimizer = 0;
            for (std::size_t i = 0; i < rig.store->parameters().size(); ++i) {
                const tape::Parameter& p = rig.store->parameters()[i];
                const auto id = static_cast<ParameterId>(i);
                for (int group = 0; group < p.matrices; ++group) {
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

/// Two windows and a half of one tensor, which members and moments share.
TEST(StoredTensors, TensorLargerThanAWindowIsWhole) {
    constexpr std::int32_t kCols = 1024, kTableRows = static_cast<std::int32_t>(kWindowBytes / sizeof(float) / kCols * 5 / 2);
    for (const auto& [device, precision] :
         {std::pair{ops::DeviceKind::ref, tape::Precision::f64}, std::pair{ops::DeviceKind::cpu, tape::Precision::f32}}) {
        auto backend = ops::make_backend(device, {});
        ASSERT_TRUE(backend.ok());
        tape::StoreOptions options;
        options.members = 2;
        options.precision = precision;
        options.ring_capacity = 1;
        tape::Store store(**backend, options);
        const ParameterId small = store.add_vector({"small"}, 3, tape::Init::value(1)),
                          large = store.add_matrix({"large"}, kTableRows, kCols, tape::Init::normal(1));
        ASSERT_TRUE(store.allocate().ok());
        store.initialize({5, 6});
        const auto members = stored_tensors(store, 1);
        for (const int member : {1, 0}) {
            const auto& tensors = members[static_cast<std::size_t>(member)];
            ASSERT_EQ(tensors.model.size(), 2u);
            EXPECT_EQ(tensors.optimizer.size(), 4u);
            for (const ParameterId id : {large, small}) {
                Kept kept;
                ASSERT_TRUE(tensors.model[static_cast<std::size_t>(id)].pour(kept).ok());
                const std::vector<float> wanted = store.read_parameter(id, 0, member);
                ASSERT_EQ(kept.bytes.size(), wanted.size() * sizeof(float));
                EXPECT_EQ(std::memcmp(kept.bytes.data(), wanted.data(), kept.bytes.size()), 0);
            }
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
        io::Checkpoint checkpoint;
        checkpoint.step = step;
        checkpoint.members = stored_tensors(*rig.store, 3);
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

/// A transformer that has trained, with a tokenizer.
std::unique_ptr<Transformer> small_transformer() {
    LanguageConfig config{23, 7, 16, 2, 24};
    config.tokenizer = std::make_shared<const data::Tokenizer>(data::Tokenizer::count_words("a b c", 23).value());
    return std::make_unique<Transformer>(config, 2);
}

TEST(FormerNames, AnOldCheckpointOfATransformerLoadsAndGoesOn) {
    testing::LanguageRig trained, other;
    ASSERT_TRUE(trained.begin(small_transformer(), 4, {5}).ok());
    ASSERT_TRUE(other.begin(small_transformer(), 4, {8}).ok());
    trained.feed_random(0);
    trained.training->run();
    const std::vector<Attachment> attachments = trained.model->attachments();
    std::vector<io::MemberTensors> members = stored_tensors(*trained.store, 1, attachments);
    io::MemberTensors& tensors = members.front();
    const auto has = [&](const std::string& name) {
        return std::ranges::any_of(tensors.model, [&](const io::TensorView& tensor) { return tensor.name == name; });
    };
    EXPECT_TRUE(has("embed.position.weight") && has("layers.0.self_attn.in_proj.weight") && has("layers.1.norm2.bias"));

    // As versions before these names wrote them.
    for (auto* file : {&tensors.model, &tensors.optimizer})
        for (io::TensorView& tensor : *file) {
            if (tensor.name.starts_with("layers.")) tensor.name.replace(0, 6, "nodes");
            if (tensor.name.starts_with("embed.position")) tensor.name.replace(6, 8, "places");
        }
    EXPECT_TRUE(has("embed.places.weight") && has("nodes.0.self_attn.in_proj.weight"));
    test::TemporaryFolder folder;
    auto store = io::CheckpointStore::open(folder.path());
    ASSERT_TRUE(store.ok());
    io::Checkpoint checkpoint;
    checkpoint.step = 1;
    checkpoint.members = std::move(members);
    const auto saved = store->save(checkpoint);
    ASSERT_TRUE(saved.ok()) << saved.error().text();
    const auto loaded = io::load_checkpoint(saved->folder);
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();

    const base::Status status = load_weights(*other.store, *loaded, true, attachments);
    ASSERT_TRUE(status.ok()) << status.error().text();
    for (const Arena arena : {Arena::value, Arena::first_moment, Arena::second_moment})
        EXPECT_EQ(testing::trained_tensors(*other.store, arena), testing::trained_tensors(*trained.store, arena));
    const auto stored = stored_language(*loaded);
    ASSERT_TRUE(stored.ok()) << stored.error().text();
    EXPECT_EQ(stored->widths.at("tokens"), 8);
}

}  // namespace
}  // namespace millrace::models
