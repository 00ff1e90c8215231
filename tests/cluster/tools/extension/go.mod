module gardenlet.test/tools/extension

go 1.25.0

tool gardenlet.test/tools/extension
