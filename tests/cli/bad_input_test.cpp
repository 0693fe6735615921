#include "cli/folder.h"
#include "io/safetensors.h"
#include "ops/backend.h"
#include "record/run_directory.h"
#include "small_disk.h"

namespace millrace::cli {
namespace {

using BadInput = InFolder;

TEST_F(BadInput, Usage) {
    expect_refusal(call({}), {"--help"});
    expect_refusal(call({"trian"}), {"did you mean train"});
    expect_refusal(call({"train", path("recipe.toml"), "--sett", "a=b"}), {"--sett"});
    expect_refusal(train("run", {"--log-level", "loud"}), {"loud", "training"});
    expect_refusal(call({"eval", path("nothing")}), {"nothing"});
    expect_refusal(call({"eval", path("data"), "--split", "train"}), {"--split"});
    expect_refusal(call({"data", "make", "garments"}), {"--out", "Try: millrace data make --help"});
    expect_refusal(call({"train"}), {"RECIPE is required\nTry: millrace train --help"});
    for (const char* command : {"record", "watch"})
        expect_refusal(call({command, "sleep", "1"}),
                       {"sleep", std::string("A command to run follows --: millrace ") + command + " -- COMMAND\nTry: "});
}

TEST_F(BadInput, Tuning) {
    write("mine.toml", "seed = 1\n");
    expect_refusal(call({"tune"}), {"RECIPE"});
    expect_refusal(call({"tune", path("absent.toml"), "--out", path("t.toml")}), {"absent.toml"});
    expect_refusal(call({"tune", path("recipe.toml"), "--seconds", "0"}), {"--seconds"});
    expect_refusal(call({"tune", path("recipe.toml"), "--free", "rate", "--out", path("t.toml")}), {"--free", "rate", "batch"});
    expect_refusal(call({"tune", path("recipe.toml"), "--out", path("recipe.toml")}), {"recipe.toml"});
    expect_refusal(call({"tune", path("recipe.toml"), "--out", path("mine.toml")}),
                   {"mine.toml", "not written by millrace tune"});
    expect_refusal(call({"tune", path("recipe.toml"), "--out", ""}), {"--out"});
    EXPECT_FALSE(std::filesystem::exists(folder_ / "t.toml"));
}

TEST_F(BadInput, Studies) {
    expect_refusal(call({"sweep"}), {"STUDY"});
    expect_refusal(call({"sweep", path("absent.toml")}), {"absent.toml"});
    write("study.toml",
          "recipe = \"recipe.toml\"\n[study]\nobjectives = [{ metric = \"validation_loss\", direction = \"minimize\" }]\n"
          "[space]\n\"optim.rl\" = { log = [1e-5, 1e-1] }\n");
    expect_refusal(call({"sweep", path("study.toml"), "--out", path("run")}), {"study.toml:5", "optim.lr"});
    write("study.toml",
          "recipe = \"recipe.toml\"\n[study]\nobjectives = [{ metric = \"validation_beauty\", direction = \"minimize\" }]\n"
          "[space]\n\"optim.lr\" = { log = [1e-5, 1e-1] }\n");
    expect_refusal(call({"sweep", path("study.toml"), "--out", path("run"), "--lanes", "many"}), {"--lanes many", "auto"});
    expect_refusal(call({"sweep", path("study.toml"), "--out", path("run"), "--time", "soon"}), {"--time soon"});
    for (const char* grace : {"a", "0s", "999ms", "25h"})
        expect_refusal(call({"sweep", path("study.toml"), "--out", path("run"), "--grace", grace}),
                       {std::string("--grace ") + grace});
    expect_refusal(call({"sweep", path("study.toml"), "--out", path("run"), "--trials", "2"}),
                   {"validation_beauty", "validation_loss"});
    for (const char* url : {"postgresql://me:secret@host/db", "postgresql://host/db?password=secret"})
        expect_refusal(call({"sweep", path("study.toml"), "--join", url, "--slurm", "time=1:00:00"}), {"--join", "PGPASSWORD"});
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(BadInput, MissingFiles) {
    expect_refusal(call({"train", path("absent.toml")}), {"absent.toml"});
    expect_refusal(train("run", {"--set", "data.path=" + path("absent")}), {"data.path", "absent"});
    std::filesystem::remove(folder_ / "data/train-labels-idx1-ubyte");
    expect_refusal(train("run"), {"train-labels-idx1-ubyte"});
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(BadInput, Recipes) {
    expect_refusal(train("run", {"--set", "train.epoch=3"}), {"train.epoch", "train.epochs"});
    expect_refusal(train("run", {"--set", "train.epochs=many"}), {"train.epochs"});
    expect_refusal(train("run", {"--set", "optim.lr=nan"}), {"optim.lr"});
    expect_refusal(train("run", {"--set", "seed=99999999999999999999"}), {"seed", "64 bits"});
    expect_refusal(train("run", {"--set", "threads=1025"}), {"threads", "1024"});
    expect_refusal(train("run", {"--set", "zzzzzzzz=1"}), {"--keys"});
    expect_refusal(train("run", {"--set", "optim.lr=inf"}), {"optim.lr"});
    expect_refusal(train("run", {"--set", "train.epochs"}), {"train.epochs"});
    write("bad.toml", "[train]\nepochs = 3\nepochs = 4\n");
    expect_refusal(call({"train", path("bad.toml")}), {"bad.toml:3"});
    write("bad.toml", "[train]\n\nbatch = 1.5\n");
    expect_refusal(call({"train", path("bad.toml")}), {"bad.toml:3", "train.batch"});
    write("bad.toml", "[optim]\nlr = nan\n");
    expect_refusal(call({"train", path("bad.toml")}), {"bad.toml:2", "optim.lr"});
    write("bad.toml", "# nothing but this\n");
    expect_refusal(call({"train", path("bad.toml"), "--out", path("run")}),
                   {"bad.toml", "empty", "model.name", "millrace models"});
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
    write("bad.toml", "[train\n");
    expect_refusal(call({"train", path("bad.toml")}), {"bad.toml:1"});
}

TEST_F(BadInput, IdxFiles) {
    const auto images = folder_ / "data/train-images-idx3-ubyte";
    const auto labels = folder_ / "data/train-labels-idx1-ubyte";
    const auto patch = [](const std::filesystem::path& file, std::streamoff at, char value) {
        std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
        stream.seekp(at);
        stream.put(value);
    };
    patch(labels, 8 + 17, 10);
    expect_refusal(train("run"), {"train-labels-idx1-ubyte", "10", "17"});
    patch(labels, 8 + 17, 9);
    patch(images, 4, 0x7f);  // claims two thousand million images
    expect_refusal(train("run"), {"train-images-idx3-ubyte"});
    patch(images, 4, 0);
    patch(images, 2, 0x0d);  // floats
    expect_refusal(train("run"), {"train-images-idx3-ubyte"});
    patch(images, 2, 0x08);
    EXPECT_EQ(train("fine").status, 0);
    std::filesystem::resize_file(images, std::filesystem::file_size(images) - 1);
    expect_refusal(train("run"), {"train-images-idx3-ubyte"});
}

TEST_F(BadInput, CheckpointOfAnotherModel) {
    ASSERT_EQ(train("run").status, 0);
    expect_refusal(train("run", {"--resume", "--set", "model.name=shallow"}), {"model.name", "collective", "shallow"});
    expect_refusal(train("run", {"--resume", "--set", "model.expert_output=16"}), {"model.expert_output"});
    expect_refusal(train("run", {"--resume", "--set", "optim.lr=0.5"}), {"optim.lr"});
    expect_refusal(train("run"), {"run"});
}

TEST_F(BadInput, BrokenSafetensors) {
    ASSERT_EQ(train("run").status, 0);
    const auto file = folder_ / "run/checkpoints/best/model.safetensors";
    std::ifstream in(file, std::ios::binary);
    const std::string whole{std::istreambuf_iterator<char>(in), {}};
    const auto replace = [&](const std::string& bytes) { std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes; };
    replace(whole.substr(0, whole.size() / 2));
    expect_refusal(call({"eval", path("run")}), {"model.safetensors"});
    replace(whole.substr(0, 5));
    expect_refusal(call({"eval", path("run")}), {"model.safetensors"});
    std::string overlapping = whole;  // the second tensor is told to begin where the first does
    const std::size_t first = overlapping.find("\"data_offsets\":[");
    const std::size_t second = overlapping.find("\"data_offsets\":[", first + 1);
    ASSERT_NE(second, std::string::npos);
    overlapping[second + 16] = '0';
    replace(overlapping);
    expect_refusal(call({"eval", path("run")}), {"model.safetensors"});
    expect_refusal(train("run", {"--resume", "--set", "train.epochs=2"}), {"model.safetensors"});
}

TEST_F(BadInput, FullDiskWhileSavingKeepsTheOldCheckpoint) {
    ASSERT_EQ(train("run").status, 0);
    const auto link = std::filesystem::read_symlink(folder_ / "run/checkpoints/last");
    const Said said = train("run", {"--resume", "--set", "train.epochs=2"}, {1 << 20, {}, {}, false});
    expect_refusal(said, {"checkpoints", "untouched"}, 1);
    EXPECT_EQ(std::filesystem::read_symlink(folder_ / "run/checkpoints/last"), link);
    const auto manifest = record::read_manifest(folder_ / "run");
    ASSERT_TRUE(manifest.ok());
    EXPECT_EQ(manifest->status, record::RunStatus::kFailed);
    EXPECT_EQ(call({"eval", path("run")}).status, 0);
    EXPECT_EQ(train("run", {"--resume", "--set", "train.epochs=2"}).status, 0);
    expect_refusal(
        call({"data", "make", "garments", "--out", path("large"), "--train", "5000", "--test", "10"}, {1 << 20, {}, {}, false}),
        {"large"}, 1);
}

TEST_F(BadInput, EmptyRunDirectoryIsRefused) {
    expect_refusal(call({"train", path("recipe.toml"), "--out", ""}), {"--out", "is empty"});
    expect_refusal(call({"train", path("recipe.toml"), "--out", "", "--resume"}), {"--out", "is empty"});
}

TEST_F(BadInput, ArgumentsThatTheLibraryWouldPassOn) {
    write("study.toml",
          "recipe = \"recipe.toml\"\n[study]\nobjectives = [{ metric = \"validation_loss\", direction = \"minimize\" }]\n"
          "[space]\n\"optim.lr\" = { log = [1e-5, 1e-1] }\n");
    const auto sweep = [&](const std::string& option, const std::string& value) {
        return call({"sweep", path("study.toml"), "--out", path("run"), option, value});
    };
    for (const char* trials : {"99999999999999999999", "9223372036854775808", "1e3", "0x10", "ten"})
        expect_refusal(sweep("--trials", trials), {"--trials", trials, "whole number", "Try: millrace sweep --help"});
    for (const char* trials : {"0", "-1", "1000001"}) expect_refusal(sweep("--trials", trials), {"--trials", "1000000"});
    expect_refusal(sweep("--join", ""), {"--join", "is empty"});
    expect_refusal(sweep("--journal", ""), {"--journal", "is empty"});
    expect_refusal(sweep("--journal", path("absent/study.log")), {path("absent"), "no such folder"});
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
    expect_refusal(call({"eval", path("run"), "--prompt", ""}), {"--prompt", "is empty"});
    for (const char* option : {"--tokens", "--temperature", "--top-k", "--seed"})
        expect_refusal(call({"eval", path("run"), option, "5"}), {option, "--prompt"});
    expect_refusal(call({"eval", path("run"), "--prompt", "a", "--tokens", "3000000000"}), {"--tokens", "2147483647"});
    expect_refusal(call({"eval", path("run"), "--prompt", "a", "--temperature", "nan"}), {"--temperature", "finite"});
    expect_refusal(call({"bench", "collective-debug", "--seconds", "nan"}), {"--seconds", "finite"});
    expect_refusal(call({"data", "make", "garments", "--out", path("set"), "--seed", "-1"}), {"--seed", "from 0 to"});
}

TEST_F(BadInput, EachCommandSaysWhichOtherOneTakesTheFile) {
    write("study.toml",
          "recipe = \"recipe.toml\"\n[study]\ntrials = 1\nfinalists = 0\n"
          "objectives = [{ metric = \"validation_loss\", direction = \"minimize\" }]\n"
          "[space]\n\"optim.lr\" = { log = [1e-5, 1e-1] }\n");
    expect_refusal(call({"train", path("study.toml"), "--out", path("run")}), {"study.toml", "is a study", "millrace sweep"});
    const Said searched = call({"sweep", path("study.toml"), "--out", path("run")});
    ASSERT_EQ(searched.status, 0) << searched.err;
    EXPECT_NE(searched.out.find("1 trial: 1 complete; 1 trial-epoch in "), std::string::npos) << searched.out;
    EXPECT_NE(searched.out.find(" 1 lane, 1 program)"), std::string::npos) << searched.out;
    expect_refusal(call({"diagnose", path("run")}), {"is the run of a sweep", "millrace train"}, 4);
}

TEST_F(BadInput, DataThatIsMissing) {
    ASSERT_EQ(train("run").status, 0);
    const Said moved = call({"eval", path("run"), "--data", path("nowhere")});
    expect_refusal(moved, {"--data " + path("nowhere")});
    EXPECT_EQ(moved.err.find("--set"), std::string::npos) << moved.err;
    std::filesystem::rename(folder_ / "data", folder_ / "moved");
    EXPECT_EQ(call({"eval", path("run"), "--data", path("moved")}).status, 0);
    expect_refusal(train("leak", {"--set", "model.name=leak_cnn", "--set", "data.path=" + path("nowhere")}),
                   {"TRAINING_DATASET.H5", "millrace data make hydrophone", "millrace data build-leak"});
}

TEST_F(BadInput, OutputsAreTriedBeforeTheWork) {
    const test::SmallDisk disk(std::size_t{1} << 20);
    if (!disk.mounted()) GTEST_SKIP() << "no file system can be mounted here";
    disk.fill();
    const std::string full = (disk.path() / "out").string();
    const std::string said = "cannot be written";
    expect_refusal(call({"tune", path("absent.toml"), "--out", path("nowhere/t.toml")}), {path("nowhere"), "no such folder"});
    // Neither the recipe nor the runs exist: whoever looks at them first has another complaint.
    expect_refusal(call({"tune", path("absent.toml"), "--out", full}), {full, said}, 1);
    expect_refusal(call({"classify", path("absent"), "--in", path("data"), "--out", full}), {full, said}, 1);
    expect_refusal(call({"diagnose", path("absent"), "--html", full}), {full, said}, 1);
}

TEST_F(BadInput, AKeyThatNothingReadsIsTold) {
    const Said said = train("run", {"--set", "data.rotate=180"});
    EXPECT_EQ(said.status, 0) << said.err;
    EXPECT_NE(said.err.find("data.rotate = 180.0 changes nothing"), std::string::npos) << said.err;
}

TEST_F(BadInput, PrecisionHasAShortForm) {
    const Said said = train("run", {"--precision", "f32", "--set", "precision=bf16"});
    EXPECT_EQ(said.status, 0) << said.err;
    EXPECT_NE(said.out.find(", f32\n"), std::string::npos) << said.out;
    expect_refusal(train("other", {"--precision", "f64"}), {"--precision"});
}

TEST_F(BadInput, LostOutputIsNoSuccess) {
    if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
    for (const ChildOptions& lost : {ChildOptions{0, {}, "/dev/full", false}, ChildOptions{0, {}, {}, true}}) {
        for (const std::vector<std::string>& words :
             {std::vector<std::string>{"models"}, {"models", "--json"}, {"--help"}, {"train", "--keys"}})
            expect_refusal(call(words, lost), {"standard output"}, 1);
        const std::string name = lost.close_out ? "closed" : "full";
        expect_refusal(train(name, {}, lost), {"standard output"}, 1);
        const auto manifest = record::read_manifest(folder_ / name);
        ASSERT_TRUE(manifest.ok());
        EXPECT_EQ(manifest->status, record::RunStatus::kFinished);
        EXPECT_EQ(call({"eval", path(name)}).status, 0);
    }
}

TEST_F(BadInput, DataSets) {
    write("data/dataset.json", R"({"name": "x", "means": 0.2})");
    const Said said = train("run");
    expect_refusal(said, {"dataset.json", "means", "mean"});
    EXPECT_EQ(said.err.find("data make"), std::string::npos) << said.err;
    write("data/dataset.json", R"({"name": "x", "mean": 0.2, "std": 0.3, "classes": 10})");
    ASSERT_EQ(train("run").status, 0);
    std::filesystem::rename(folder_ / "data", folder_ / "moved");
    expect_refusal(call({"eval", path("run")}), {"--data"});
    EXPECT_EQ(call({"eval", path("run"), "--data", path("moved")}).status, 0);
}

TEST_F(BadInput, DivergedRuns) {
    const Said said = train("run", {"--set", "optim.name=sgd", "--set", "optim.lr=1e30"});
    EXPECT_EQ(said.status, 1) << said.out << said.err;
    EXPECT_EQ(said.out.find("new best"), std::string::npos) << said.out;
    EXPECT_NE(said.err.find("optim.lr"), std::string::npos) << said.err;
    write("data/dataset.json", R"({"mean": 0, "std": 1e-42})");  // every pixel becomes infinite
    const Said dropped = train("dropped");
    EXPECT_EQ(dropped.status, 1) << dropped.out << dropped.err;
    EXPECT_NE(dropped.err.find("all 5 steps were dropped"), std::string::npos) << dropped.err;
    const auto manifest = record::read_manifest(folder_ / "dropped");
    ASSERT_TRUE(manifest.ok());
    EXPECT_EQ(manifest->status, record::RunStatus::kFailed);
    EXPECT_EQ(manifest->exit_status, 1);
    EXPECT_EQ(manifest->versions.count("compiler"), 1u);
}

TEST_F(BadInput, NothingSetAsideToEvaluate) {
    ASSERT_EQ(train("run", {"--set", "data.validation=0"}).status, 0);
    const Said said = call({"eval", path("run"), "--split", "validation"});
    EXPECT_EQ(said.status, 4) << said.err;
}

TEST_F(BadInput, CudaWithoutAGpu) {
    if (ops::cuda_available().ok()) GTEST_SKIP() << "this machine has a GPU";
    expect_refusal(train("run", {"--device", "cuda"}), {"--device cuda"});
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
    expect_refusal(call({"bench", "--device", "cuda"}), {"--device cuda"});
    expect_refusal(train("run", {"--set", "precision=bf16"}), {"bf16"});
}

}  // namespace
}  // namespace millrace::cli
