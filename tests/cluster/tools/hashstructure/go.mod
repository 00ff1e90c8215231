module gardenlet.test/tools/config-hash

go 1.25.0

tool gardenlet.test/tools/config-hash

require github.com/mitchellh/hashstructure/v2 v2.0.2
