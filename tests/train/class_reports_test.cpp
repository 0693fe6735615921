// Evaluation reports each class, for every member and with a shorter last batch.
#include "data/images/garments.h"
#include "train/evaluate.h"
#include "train/tiny_run.h"

namespace millrace::train {
namespace {

class ClassReports : public TinyRun {
protected:
    void expect_reports(const std::string& name, std::size_t members) {
        for (const data::Part part : {data::Part::test, data::Part::validation}) {
            const auto report = evaluate_run(folder_ / name, part);
            ASSERT_TRUE(report.ok()) << report.error().text();
            ASSERT_EQ(report->members.size(), members);
            EXPECT_EQ(report->class_names, (std::vector<std::string>{data::kGarmentNames.begin(), data::kGarmentNames.end()}));
            for (const Score& score : report->members) {
                ASSERT_TRUE(score.classes);
                EXPECT_EQ(score.classes->classes.size(), 10u);
                EXPECT_EQ(score.classes->samples, static_cast<std::uint64_t>(report->samples));
                // The device's own count.
                EXPECT_EQ(score.classes->accuracy, score.accuracy);
            }
            if (part != data::Part::test) continue;
            // Image i of garments has label i % 10.
            for (std::size_t label = 0; label < 10; ++label)
                EXPECT_EQ(report->members[0].classes->classes[label].samples, label == 0 ? 11u : 10u);
        }
    }
};

TEST_F(ClassReports, AgreeWithTheAccuracyOfTheDevice) {
    ASSERT_TRUE(run("one", {"train.epochs=1"}).ok());
    const Score& validation = observer_.epochs.at(0).validation.at(0);
    ASSERT_TRUE(validation.classes);
    EXPECT_EQ(validation.classes->accuracy, validation.accuracy);
    expect_reports("one", 1);
}

TEST_F(ClassReports, OfEveryFamilyAndMember) {
    for (const std::string name : {"cnn", "shallow", "deep_resnet"}) {
        ASSERT_TRUE(run(name, {"model.name=" + name, "model.preset=debug", "members=3", "train.epochs=1"}).ok());
        expect_reports(name, 3);
    }
}

TEST_F(ClassReports, ArePicturesOfFinishedAndOfStoppedRuns) {
    ASSERT_TRUE(run("finished", {"train.epochs=1", "members=2"}).ok());
    const std::string tested = bytes("finished/confusion.svg");
    EXPECT_NE(tested.find("101 images of test, best weights of member "), std::string::npos) << tested.substr(0, 2000);
    for (const std::string_view name : data::kGarmentNames)
        EXPECT_NE(tested.find(">" + std::string(name) + "</text>"), std::string::npos) << name;

    // Stopped in the second epoch: the best weights so far.
    struct Stopper final : Listener {
        base::Status on_epoch(EpochReport&) override {
            request_stop();
            return base::ok();
        }
    } stopper;
    TrainRequest request;
    request.out = folder_ / "stopped";
    request.command = {"test"};
    const auto stopped = train(recipe({"train.epochs=3"}), request, {&stopper});
    ASSERT_TRUE(stopped.ok()) << stopped.error().text();
    EXPECT_TRUE(stopped->stopped);
    EXPECT_NE(bytes("stopped/confusion.svg").find("images of validation, best weights"), std::string::npos);
}

TEST_F(ClassReports, WithNothingSetAsideThePictureIsOfTheTestPart) {
    ASSERT_TRUE(run("all", {"train.epochs=1", "data.validation=0"}).ok());
    EXPECT_NE(bytes("all/confusion.svg").find("101 images of test"), std::string::npos);
}

}  // namespace
}  // namespace millrace::train
