module gardenlet.test/tools/etcd-wrapper

go 1.25.0

tool gardenlet.test/tools/etcd-wrapper
